"""The API of sites, their calls and the commands to them."""
