/* local_run.c - the same job with its ranks as threads, for comparison.
 *   local_run JOB WORLD DIR [section.key=value | --force]... */
#include "tests/support/job_threads.h"

#include "base/file/fs.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc < 4)
        return 64;
    if (fs_make_dirs(argv[3]) != ZD_OK)
        return 73;
    /* argv ends with the NULL that ends the sets */
    enum zd_status status = job_threads_run(
            argv[1], (const char *const *)argv + 4, atoi(argv[2]), argv[3]);
    zd_error_print(stderr, zd_error_get());
    return zd_exit_code(status);
}
