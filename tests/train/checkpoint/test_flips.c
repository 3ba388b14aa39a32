/* test_flips.c [all] - one bit of a checkpoint is wrong: of every sixth byte
 * (all: of every byte) of a shard's header, and of 250 (2,000) bytes of what
 * the files hold. Each is found by who verifies it and by who would go on from
 * it, with the file and the array named. */
#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "tests/support/job_threads.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"
#include "train/run.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORLD = 2 };

struct file {
    char path[PATH_MAX];
    const char *name; /* inside path */
    uint64_t bytes;
    struct st_file *st; /* NULL: no shard */
    uint64_t data;      /* where its arrays begin */
};

struct trial {
    const char *checkpoint; /* its folder */
    struct comm *comm;
    struct train_job job;
    int wrong;        /* flips that were not found, or not named */
    char first[1000]; /* the first of them */
};

static bool flip(const struct file *file, uint64_t at, int bit)
{
    unsigned char byte;
    int fd = open(file->path, O_RDWR | O_CLOEXEC);
    bool ok = fd >= 0 && pread(fd, &byte, 1, (off_t)at) == 1;
    byte ^= (unsigned char)(1 << bit);
    ok = ok && pwrite(fd, &byte, 1, (off_t)at) == 1;
    return fd >= 0 && close(fd) == 0 && ok;
}

/* Is the thread's error this damage? It is taken. */
static bool is_named(
        enum zd_status status, const struct file *file, const char *part)
{
    const struct zd_error *error = zd_error_get();
    return status == ZD_ERR_DATA && strstr(error->what, file->name) &&
           (!part || strstr(error->what, part));
}

static void try_flip(
        struct trial *trial, const struct file *file, uint64_t at, int bit,
        const char *part)
{
    char path[PATH_MAX], digest[HASH_HEX];
    struct checkpoint *open;
    if (!flip(file, at, bit))
        abort();
    enum zd_status verify =
            checkpoint_open(trial->checkpoint, CHECKPOINT_DIGESTS, &open);
    if (verify == ZD_OK)
        checkpoint_close(open);
    bool verified = is_named(verify, file, part);
    zd_error_clear();
    enum zd_status resume =
            choose_checkpoint(trial->comm, &trial->job, path, digest);
    bool resumed = is_named(resume, file, part);
    if ((!verified || !resumed) && !trial->wrong++)
        ZD_PRINT(
                trial->first, "bit %d of byte %llu of %s%s%s: %.300s", bit,
                (unsigned long long)at, file->name, part ? ", " : "",
                part ? part : "", zd_error_get()->what);
    zd_error_clear();
    if (!flip(file, at, bit))
        abort();
}

/* "m of model.norm.weight": the array that has this byte. */
static const char *array_at(const struct file *file, uint64_t at)
{
    static char text[300];
    for (int i = 0; file->st && i < file->st->tensor_count; i++) {
        const struct st_tensor *tensor = &file->st->tensors[i];
        if (at < tensor->begin || at >= tensor->begin + tensor->bytes)
            continue;
        const char *slash = strchr(tensor->name, '/');
        ZD_PRINT(
                text, "damaged in %.*s of %.*s:", (int)(slash - tensor->name),
                tensor->name, (int)(strrchr(tensor->name, '@') - slash - 1),
                slash + 1);
        return text;
    }
    return NULL;
}

static void flip_headers(
        struct trial *trial, const struct file *files, int count,
        uint64_t stride)
{
    int tried = 0;
    for (int f = 0; f < count; f++)
        for (uint64_t at = 0; files[f].st && at < files[f].data;
             at += stride, tried++)
            try_flip(
                    trial, &files[f], at, (int)(at % 8),
                    "damaged in its header:");
    tap_ok(tried > 1000 && !trial->wrong,
           "bytes of the headers: %d flips, %d not found or not named "
           "(%s)",
           tried, trial->wrong, trial->first);
}

/* Arrays, configuration, tokenizer, the trainer's state: by their bytes. */
static void flip_payload(
        struct trial *trial, const struct file *files, int count, int flips)
{
    uint64_t total = 0, state = 20;
    trial->wrong = 0;
    trial->first[0] = '\0';
    for (int f = 0; f < count; f++)
        total += files[f].bytes - files[f].data;
    for (int i = 0; i < flips; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t at = (state >> 20) % total;
        int f = 0;
        while (at >= files[f].bytes - files[f].data) {
            at -= files[f].bytes - files[f].data;
            f++;
        }
        at += files[f].data;
        try_flip(
                trial, &files[f], at, (int)(state >> 61),
                array_at(&files[f], at));
    }
    tap_ok(!trial->wrong, "payload: %d flips, %d not found or not named (%s)",
           flips, trial->wrong, trial->first);
}

/* One that says the same afterwards (1e-05 and 1E-05) is no damage. */
static void flip_manifest(struct trial *trial)
{
    char *text;
    size_t bytes;
    int found = 0, same = 0, lost = 0;
    json_t *sound, *now;
    struct file file = {.name = CHECKPOINT_MANIFEST};
    fs_join(file.path, sizeof file.path, trial->checkpoint, file.name);
    if (fs_read_file(file.path, 1 << 26, &text, &bytes) != ZD_OK ||
        manifest_read(trial->checkpoint, &sound) != ZD_OK)
        abort();
    free(text);
    for (uint64_t at = 0; at < bytes; at++) {
        if (!flip(&file, at, (int)(at % 8)))
            abort();
        enum zd_status status = manifest_read(trial->checkpoint, &now);
        if (status == ZD_OK) {
            bool equal = json_equal(sound, now);
            same += equal;
            lost += !equal;
            json_decref(now);
        } else {
            found += is_named(status, &file, NULL);
        }
        zd_error_clear();
        if (!flip(&file, at, (int)(at % 8)))
            abort();
    }
    json_decref(sound);
    tap_ok((size_t)(found + same) == bytes && same < 20 && !lost,
           "every byte of the manifest: %zu flips, %d found, %d without a "
           "meaning",
           bytes, found, same);
}

static int list_files(const char *checkpoint, struct file *files, int most)
{
    json_t *manifest;
    int count = 0;
    if (manifest_read(checkpoint, &manifest) != ZD_OK)
        return 0;
    JSON_EACH(entry, json_object_get(manifest, "files")) {
        struct file *file = &files[count++];
        if (count > most)
            abort();
        fs_join(file->path, sizeof file->path, checkpoint,
                json_string_at(entry, "name"));
        file->name = strrchr(file->path, '/') + 1;
        file->bytes = (uint64_t)json_integer_at(entry, "bytes");
        if (strncmp(file->name, "shard-", 6) != 0)
            continue;
        if (st_open(file->path, &file->st) != ZD_OK)
            abort();
        file->data = file->bytes;
        for (int t = 0; t < file->st->tensor_count; t++)
            if (file->st->tensors[t].begin < file->data)
                file->data = file->st->tensors[t].begin;
    }
    json_decref(manifest);
    return count;
}

int main(int argc, char **argv)
{
    enum { FILES = 16 };
    static struct file files[FILES];
    char checkpoint[PATH_MAX];
    const char *dir = job_threads_dir();
    const char *sets[] = {"checkpoint.export=none", NULL};
    ZD_PRINT(checkpoint, "%s/out/checkpoint-000002", dir);
    bool ran = job_threads_run("tests/train/bytes.toml", sets, WORLD, dir) ==
               ZD_OK;
    int count = ran ? list_files(checkpoint, files, FILES) : 0;
    tap_ok(count >= WORLD + 2, "a checkpoint of %d files", count);
    if (!count)
        return tap_done();

    struct trial trial = {.checkpoint = checkpoint, .job = train_job_default()};
    trial.job.run.resume = RESUME_PATH;
    trial.job.run.resume_path = checkpoint;
    trial.job.device.cpu_threads = 1;
    if (comm_local_create(1, &trial.job.comm, &trial.comm) != ZD_OK)
        abort();
    flip_headers(&trial, files, count, argc > 1 ? 1 : 6);
    flip_payload(&trial, files, count, argc > 1 ? 2000 : 250);
    flip_manifest(&trial);
    comm_destroy(trial.comm);
    for (int f = 0; f < count; f++)
        st_close(files[f].st);
    return tap_done();
}
