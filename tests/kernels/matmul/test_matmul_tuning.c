/* test_matmul_tuning.c - the file that remembers algorithms of matmuls: several
 * writers, other GPUs and libraries, damaged files, a held lock. */
#include "base/file/fs.h"
#include "kernels/matmul/matmul_tuning.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char cache[64];

static void cache_only(void)
{
    ZD_PRINT(cache, "/tmp/zerod-tuning-%d", (int)getpid());
    setenv("XDG_CACHE_HOME", cache, 1);
}

static void cache_end(void)
{
    fs_remove_tree(cache);
    zd_error_clear();
}

static struct tuned tuned_of(int m)
{
    struct tuned t = {
            .key = {.m = m, .n = 7, .k = 9, .ldb = 64, .alignment = 16},
            .workspace_kib = 32768,
            .microseconds = (float)m,
    };
    for (int i = 0; i < 8; i++)
        t.algorithm[i] = (uint64_t)m << (i * 8);
    return t;
}

static bool knows(const struct tuning *tuning, int m)
{
    struct tuned t = tuned_of(m);
    const struct tuned *found = tuning_find(tuning, &t.key, t.workspace_kib);
    return found && memcmp(found->algorithm, t.algorithm, 64) == 0;
}

static void add(struct tuning *tuning, int m, int patience)
{
    struct tuned t = tuned_of(m);
    tuning_lock(tuning, patience);
    tuning_add(tuning, &t);
    tuning_unlock(tuning);
}

enum { EACH = 40 };

struct writer {
    pthread_t thread;
    int first;
};

static void *write_some(void *ctx)
{
    struct writer *writer = ctx;
    struct tuning *tuning = tuning_create("GPU", "library");
    for (int i = 0; i < EACH; i++)
        add(tuning, writer->first + i, 60000);
    tuning_destroy(tuning);
    return NULL;
}

TestSuite(matmul_tuning, .init = cache_only, .fini = cache_end);

Test(matmul_tuning, concurrent_writers_lose_nothing)
{
    struct writer writers[] = {{.first = 1}, {.first = 1000}, {.first = 2000}};
    for (int i = 0; i < 3; i++)
        pthread_create(&writers[i].thread, NULL, write_some, &writers[i]);
    for (int i = 0; i < 3; i++)
        pthread_join(writers[i].thread, NULL);
    struct tuning *tuning = tuning_create("GPU", "library");
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < EACH; j++)
            cr_assert(knows(tuning, writers[i].first + j));
    tuning_destroy(tuning);
}

Test(matmul_tuning, file_of_another_gpu_or_library_is_ignored)
{
    struct tuning *tuning = tuning_create("GPU 1", "library 13.1");
    add(tuning, 5, 1000);
    tuning_destroy(tuning);
    /* names that map to the same path */
    struct tuning *gpu2 = tuning_create("GPU-1", "library 13.1");
    struct tuning *library2 = tuning_create("GPU 1", "library-13.1");
    struct tuning *same = tuning_create("GPU 1", "library 13.1");
    cr_assert_str_eq(tuning_path(gpu2), tuning_path(same));
    cr_assert(!knows(gpu2, 5));
    cr_assert(!knows(library2, 5));
    cr_assert(knows(same, 5));
    tuning_destroy(gpu2), tuning_destroy(library2), tuning_destroy(same);
}

Test(matmul_tuning, damaged_files_are_ignored)
{
    static const char *const texts[] = {
            "",
            "\n",
            "zerod products 3",
            "zerod products 3\n",
            "zerod products 3 abc\nGPU\nlibrary\n",
            "zerod products 3 abc\nGPU\nlibrary\n1 2 3\n"};
    char folder[PATH_MAX], path[PATH_MAX];
    ZD_PRINT(folder, "%s/zerod", cache);
    cr_assert_eq(fs_make_dirs(folder), ZD_OK);
    fs_join(path, sizeof path, folder, "products-gpu-library.txt");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        cr_assert_eq(fs_write_file(path, texts[i], strlen(texts[i])), ZD_OK);
        struct tuning *tuning = tuning_create("GPU", "library");
        cr_assert(!knows(tuning, 3));
        add(tuning, 3, 1000);
        tuning_destroy(tuning);
        tuning = tuning_create("GPU", "library");
        cr_assert(knows(tuning, 3), "after \"%s\"", texts[i]);
        tuning_destroy(tuning);
    }
}

Test(matmul_tuning, wait_for_a_lock_times_out)
{
    struct tuning *first = tuning_create("GPU", "library");
    struct tuning *second = tuning_create("GPU", "library");
    tuning_lock(first, 1000);
    add(second, 4, 10); /* only for itself */
    cr_assert(knows(second, 4));
    tuning_unlock(first);
    struct tuning *third = tuning_create("GPU", "library");
    cr_assert(!knows(third, 4));
    tuning_destroy(first), tuning_destroy(second), tuning_destroy(third);
}
