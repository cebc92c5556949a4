"""Eight known curves of click probability: bins against splines."""
