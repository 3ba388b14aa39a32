#include "model/files/tensor_files.h"
#include "base/file/fs.h"
#include "base/must.h"
#include "model/files/export_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 18 /* elements in memory at a time */ };

/* Does the tensor have float values? *type_out: their type. */
static bool is_float(const struct file_tensor *tensor, enum dtype *type_out)
{
    return !tensor->raw &&
           dtype_find(dtype_safetensors_name, tensor->entry.dtype, type_out);
}

static size_t element_bytes(const struct file_tensor *tensor)
{
    enum dtype type;
    return is_float(tensor, &type) ? dtype_bytes(type) : 1;
}

/* --- the list ------------------------------------------------------------- */

struct file_tensor *tensor_files_add(
        struct tensor_files *files, int id, int kind, const char *dtype,
        int dims, int64_t rows, int64_t columns)
{
    if (files->count == files->room) {
        files->room = files->room ? 2 * files->room : 64;
        files->tensors = zd_must(realloc(
                files->tensors, (size_t)files->room * sizeof *files->tensors));
    }
    files->files = 1;
    struct file_tensor *tensor = &files->tensors[files->count++];
    *tensor = (struct file_tensor){
            .id = id,
            .kind = kind,
            .entry = {.dtype = dtype, .dims = dims, .shape = {rows, columns}}};
    tensor->bytes = (uint64_t)rows * (uint64_t)columns * element_bytes(tensor);
    return tensor;
}

enum zd_status tensor_files_add_raw(
        struct tensor_files *files, int id, const struct st_entry *entry,
        uint64_t bytes)
{
    if (strlen(entry->name) >= FILE_TENSOR_NAME)
        return ZD_BAD(
                "E0311",
                "the name of tensor `%.100s...` is longer than %d bytes",
                entry->name, FILE_TENSOR_NAME - 1);
    struct file_tensor *tensor =
            tensor_files_add(files, id, 0, entry->dtype, 0, 0, 0);
    tensor->entry = *entry;
    tensor->bytes = bytes;
    tensor->raw = true;
    ZD_PRINT(tensor->name, "%s", entry->name);
    return ZD_OK;
}

void tensor_files_cut(struct tensor_files *files, uint64_t max_bytes)
{
    uint64_t filled = 0;
    ZD_EACH(tensor, files->tensors, files->count) {
        if (filled && filled + tensor->bytes > max_bytes) {
            files->files++;
            filled = 0;
        }
        filled += tensor->bytes;
        tensor->file = files->files - 1;
    }
}

void tensor_files_name(
        const struct tensor_files *files, int file, char out[TENSOR_FILE_NAME])
{
    if (files->files == 1)
        snprintf(out, TENSOR_FILE_NAME, "%s.safetensors", files->stem);
    else
        snprintf(
                out, TENSOR_FILE_NAME, "%s-%05d-of-%05d.safetensors",
                files->stem, file + 1, files->files);
}

uint64_t tensor_files_bytes(const struct tensor_files *files, int file)
{
    uint64_t bytes = 0;
    for (int i = 0; i < files->count; i++)
        if (file < 0 || files->tensors[i].file == file)
            bytes += files->tensors[i].bytes;
    return bytes;
}

void tensor_files_fini(struct tensor_files *files)
{
    free(files->tensors);
    *files = (struct tensor_files){0};
}

static struct fs_path path_of(const struct tensor_files *files, int file)
{
    char name[TENSOR_FILE_NAME];
    tensor_files_name(files, file, name);
    return fs_in(files->dir, name);
}

enum zd_status tensor_files_create(const struct tensor_files *files)
{
    ZD_FREED struct st_entry *entries =
            zd_array((size_t)files->count, sizeof *entries);
    json_auto_t *mark =
            zd_must(json_pack("{s:s}", EXPORT_WRITER_KEY, EXPORT_WRITER));
    if (files->metadata)
        json_object_update(mark, files->metadata);
    for (int file = 0; file < files->files; file++) {
        struct st_writer *writer;
        int count = 0;
        for (int i = 0; i < files->count; i++) {
            const struct file_tensor *tensor = &files->tensors[i];
            if (tensor->file != file)
                continue;
            entries[count] = tensor->entry;
            entries[count++].name = tensor->name;
        }
        ZD_TRY(st_writer_create(
                path_of(files, file).text, entries, count, mark, &writer));
        ZD_TRY(st_writer_leave(writer));
    }
    return ZD_OK;
}

/* --- what is in the files ------------------------------------------------- */

/* A file being written. */
struct writing {
    const struct tensor_files *files;
    uint64_t begin, end; /* the part's range in the tensors of all files */
    const struct st_file *file;
    int fd;
    float *values; /* (PIECE) */
    void *packed;  /* room for (PIECE) floats */
};

/* The offset in the file of a byte of its tensors, rounded to a page: parts
 * meet at page boundaries, so that two hosts never write the same page. */
static uint64_t place_of(uint64_t data_begin, uint64_t bytes, uint64_t at)
{
    enum { PAGE = 4096 };
    if (at == 0 || at == bytes)
        return data_begin + at;
    uint64_t page = (data_begin + at) / PAGE * PAGE;
    return page > data_begin ? page : data_begin;
}

/* Writes bytes [from, to) of the file, which belong to this tensor. */
static enum zd_status write_run(
        const struct writing *w, const struct file_tensor *tensor,
        uint64_t begin, uint64_t from, uint64_t to)
{
    enum dtype type;
    bool converts = is_float(tensor, &type);
    size_t size = element_bytes(tensor);
    while (from < to) {
        size_t left = (size_t)((to - from) / size);
        size_t n = left < PIECE ? left : PIECE;
        ZD_TRY(w->files->read(
                w->files->ctx, tensor, (size_t)((from - begin) / size), n,
                converts ? w->values : w->packed));
        if (converts)
            dtype_convert(w->packed, type, w->values, DTYPE_FP32, n);
        ZD_TRY(fs_pwrite(w->fd, w->file->path, w->packed, n * size, from));
        from += n * size;
    }
    return ZD_OK;
}

/* Writes bytes [from, to) of a file, across tensors. */
static enum zd_status write_tensors(
        const struct writing *w, int file, uint64_t from, uint64_t to)
{
    ZD_EACH(tensor, w->files->tensors, w->files->count) {
        if (tensor->file != file)
            continue;
        const struct st_tensor *place = st_find(w->file, tensor->name);
        if (!place)
            return ZD_FAIL(
                    ZD_ERR_BUG, "E0902", "%s lacks %s", w->file->path,
                    tensor->name);
        uint64_t end = place->begin + place->bytes;
        uint64_t first = from > place->begin ? from : place->begin;
        uint64_t last = to < end ? to : end;
        if (first < last)
            ZD_TRY(write_run(w, tensor, place->begin, first, last));
    }
    return ZD_OK;
}

/* Writes the intersection of [w->begin, w->end) with a file whose tensors begin
 * at `at`. */
static enum zd_status write_part(struct writing *w, int index, uint64_t at)
{
    const struct fs_path path = path_of(w->files, index);
    struct st_file *file;
    uint64_t bytes = tensor_files_bytes(w->files, index), end = at + bytes;
    if (w->begin >= end || w->end <= at)
        return ZD_OK;
    ZD_TRY(st_open(path.text, &file));
    uint64_t data = file->file_bytes - bytes;
    uint64_t from = place_of(data, bytes, w->begin > at ? w->begin - at : 0);
    uint64_t to = place_of(data, bytes, w->end < end ? w->end - at : bytes);
    enum zd_status status;
    w->file = file;
    w->fd = open(path.text, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (w->fd < 0) {
        status =
                ZD_FAIL(ZD_ERR_CREATE, "E0708", "cannot create %s: %s",
                        path.text, strerror(errno));
    } else {
        status = write_tensors(w, index, from, to);
        enum zd_status synced = fs_sync_close(w->fd, path.text);
        status = status == ZD_OK ? synced : status;
    }
    st_close(file);
    return status;
}

enum zd_status tensor_files_write(
        const struct tensor_files *files, int part, int parts)
{
    uint64_t at = 0, total = tensor_files_bytes(files, -1);
    uint64_t each = total / (uint64_t)parts;
    ZD_FREED float *values = zd_array(2 * PIECE, sizeof *values);
    struct writing w = {
            .files = files,
            .begin = each * (uint64_t)part,
            .end = part + 1 == parts ? total : each * (uint64_t)(part + 1),
            .values = values,
            .packed = values + PIECE};
    for (int i = 0; i < files->files; i++) {
        ZD_TRY(write_part(&w, i, at));
        at += tensor_files_bytes(files, i);
    }
    return ZD_OK;
}
