/* Files that are read or written, and whether that goes on. */
#include "comm/backend.h"

#include <stdlib.h>

struct comm_files *comm_files_begin(struct comm *comm, const char *what)
{
    for (int i = 0; i < COMM_FILES_MAX; i++) {
        struct comm_files *files = &comm->files[i];
        bool is_taken = false;
        if (!atomic_compare_exchange_strong(&files->is_taken, &is_taken, true))
            continue;
        files->what = what;
        atomic_store(&files->progress.completed, 0);
        progress_use(&files->progress);
        return files;
    }
    return NULL;
}

struct progress *comm_files_progress(struct comm_files *files)
{
    return files ? &files->progress : NULL;
}

void comm_files_end(struct comm_files *files)
{
    if (!files)
        return;
    progress_use(NULL);
    atomic_store(&files->is_taken, false);
}
