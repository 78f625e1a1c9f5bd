"""`fieldpost outbox doctor`: checks of an application's outbox, its relay and its central. It changes nothing."""
