/* man_notes.c - what the tables cannot say of the programs. */
#include "daemon/reference/man.h"

#include <stddef.h>

const struct man_notes man_zerod = {
        .description =
                "Trains and fine-tunes language models, sharded over MPI ranks "
                "by ZeRO stages 0 to 3, with states on the host or on NVMe "
                "where the device has no room. A job file says what to do; "
                "see job.toml(5). Started by `mpirun` or `srun` it is that "
                "many ranks, and one without either.\n"
                "A run answers on a socket while it trains: see zerodctl(1). "
                "Results go to the standard output, everything else to the "
                "standard error.\n",
        .environment =
                "XDG_RUNTIME_DIR\tThe control socket is made below its folder "
                "`zerod`; without it below `/tmp/zerod-UID`.\n"
                "SLURM_JOB_END_TIME\tWhen the job will be ended, in seconds "
                "since 1970: a deadline.\n"
                "NOTIFY_SOCKET\tWhere systemd is told that the run is ready, "
                "how it goes and that it is alive.\n",
        .files = "OUTPUT_DIR/metrics.jsonl\tA row for every step.\n"
                 "OUTPUT_DIR/events.jsonl\tWhat happened, commands too.\n"
                 "OUTPUT_DIR/status.json\tThe state of the run, rewritten "
                 "every two seconds.\n"
                 "OUTPUT_DIR/checkpoint-000500\tA checkpoint.\n"
                 "OUTPUT_DIR/hf\tThe exported model.\n"
                 "OUTPUT_DIR/logs\tLines of each rank.\n",
        .see_also = "`zerodctl`(1), `job.toml`(5), `mpirun`(1)",
};

const struct man_notes man_zerodctl = {
        .description =
                "Asks a running job of zerod(1) and steers it, over the unix "
                "socket on which its first rank answers. Where only one job "
                "runs it needs no name. What changes a run takes effect on all "
                "ranks at one step boundary.\n",
        .environment =
                "XDG_RUNTIME_DIR\tSockets are looked for below its folder "
                "`zerod`; without it below `/tmp/zerod-UID`.\n"
                "NO_COLOR\tWhen it is set, nothing is colored.\n",
        .files = "$XDG_RUNTIME_DIR/zerod/JOB.sock\tThe socket of a job: "
                 "HTTP/1.1 with JSON.\n"
                 "OUTPUT_DIR/status.json\tWhat `--dir` reads where the socket "
                 "is out of reach.\n",
        .see_also = "`zerod`(1), `job.toml`(5), `curl`(1)",
};
