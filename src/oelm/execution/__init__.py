"""Where runs run: engines and the controller that starts what is missing; timing, checks, servers. No torch here."""
