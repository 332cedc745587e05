"""A soak test: a real server under random work and all that can go wrong, for as long as there is time.

``make soak MINUTES=60`` runs legs, one behind the other.  In each a server is at random work, a second one is its
ordinary logical subscriber (the oracle), ``walreplay record`` writes an archive, and the command line applies it to a
target with all outputs.  All of them are killed and paused at random, the network is cut, the store fails, a standby is
promoted.  Now and then all stop at an LSN, and must hold the same.

`leg` is the course of a leg, `stand` all that runs, `incidents` what goes wrong, `comparison` what all have to hold.
"""
