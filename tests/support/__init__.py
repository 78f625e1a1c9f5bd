"""What the tests stand on: real servers, found or started, and the rule for what cannot be had."""
