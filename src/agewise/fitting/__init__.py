"""From readings to a scenario whose privacy claim is true."""
