"""The simulated runtime: a whole cluster in one process, in virtual time, from a seed.

run        one run from one seed: draw, work and harm, heal, check everything
swarm      draws what a run is made of
campaign   many runs, spread over processes
cluster    the shipped code on simulated machines, around one store
world/     machines, clock, disks, network
harm/      what goes wrong
programs/  what runs on the clients' machines
history    what really happened, as no node can know
wire       what each bookie has promised to which client
checkers/  what must always hold
"""
