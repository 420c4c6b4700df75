"""What others reach: each with its source, and measured on two shared cores where nothing else is said.

Swarm is Docker Engine 20.10 with a busybox ``sleep`` as the task; figures are medians (and maxima).
"""

RUNIT_RESTART = "runit: 9-20 ms; supervisord: 1.02 s"
SWARM_RESTART = "Docker Swarm: 5.54 s, 0.56 s with its restart delay off"
PROCESSES_UP = "runit: 155/s; supervisord: 100/s"
SHORT_TASKS = "Slurm: 47-51/s; Nomad: 7/s"
SWARM_UP = "Docker Swarm: 5.1-5.4/s"
ENGINE_UP = "Docker Engine 20.10: 8.6-8.9/s with a bridge, 9.4-9.8/s without"
SWARM_ONE = "Docker Swarm: 0.45 s (0.48)"
BARE_RUN = "Docker Engine 20.10, docker run --rm: 0.30 s"
NOMAD_CONTROL = "Nomad C1M: 3,750/s on 5 large servers"
BORG_SCRATCH = "Borg: a few hundred s"
BORG_TECHNIQUES = "Borg: a few hundred s with all three, not done in 3 days without"
BORG_ONLINE = "Borg: < 500 ms"
BORG_RECOVERY = "Borg: 10-60 s"
BORG_MASTER_MEMORY = "Borg: up to 50 GiB"
TIGERBEETLE_SIMULATOR = "TigerBeetle: ~1000"
