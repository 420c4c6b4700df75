"""Words on the network: what master and borglet, and what clients and master, say to each other."""
