/* leftovers.h - what ranks that were killed together with their mpirun left in
 * shared memory: Open MPI's segments, which no one else removes and which fill
 * /dev/shm in the end. Only those of this user and host that no process has
 * mapped go. */
#pragma once

/* Called before MPI is begun; one rank of a host does it. Best effort: what
 * cannot be known is left. */
void leftovers_sweep(void);
