"""Games of OpenSpiel: `openspiel:tic_tac_toe`."""
