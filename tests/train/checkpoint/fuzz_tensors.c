/* fuzz_tensors.c - files of tensors whose headers are sound and whose tensors
 * are not those that belong there. */
#include "base/text_buffer.h"
#include "tests/train/checkpoint/fuzz_files.h"

enum { IMAGE_BYTES = 4 << 20 };

static char pool[IMAGE_BYTES]; /* what one input made new */
static size_t pool_used;

void fuzz_tensors_read(const char *path, struct fuzz_tensors *out)
{
    struct st_file *file;
    fuzz_need(
            st_open(path, &file) == ZD_OK &&
                    file->tensor_count <= FUZZ_TENSORS_MAX,
            path);
    out->count = file->tensor_count;
    for (int i = 0; i < out->count; i++) {
        const struct st_tensor *from = &file->tensors[i];
        struct fuzz_tensor *t = &out->at[i];
        *t = (struct fuzz_tensor){.dims = from->dims, .bytes = from->bytes};
        ZD_PRINT(t->name, "%s", from->name);
        strcpy(t->dtype, from->dtype);
        memcpy(t->shape, from->shape, sizeof t->shape);
        t->data = malloc(t->bytes + 1);
        fuzz_need(
                st_read_bytes(file, from, 0, t->bytes, t->data) == ZD_OK, path);
    }
    st_close(file);
}

void fuzz_tensors_begin(
        struct fuzz_tensors *to, const struct fuzz_tensors *from)
{
    *to = *from;
    pool_used = 0;
}

/* Data for the form that a tensor has now; what it had comes first. */
static void resize(struct fuzz_tensor *t)
{
    static const struct {
        const char *dtype;
        size_t bytes;
    } wide[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8}};
    size_t bytes = 1;
    for (int i = 0; i < 5; i++)
        bytes = strcmp(t->dtype, wide[i].dtype) == 0 ? wide[i].bytes : bytes;
    for (int d = 0; d < t->dims; d++)
        bytes *= (size_t)t->shape[d];
    fuzz_need(
            pool_used + bytes <= sizeof pool,
            "more data than an input may make");
    char *data = pool + pool_used;
    memset(data, 0, bytes);
    memcpy(data, t->data, bytes < t->bytes ? bytes : t->bytes);
    pool_used += bytes;
    t->data = data;
    t->bytes = bytes;
}

/* Another end, a prefix more or less, or another letter. */
static void rename_tensor(struct fuzz_tensor *t, uint64_t *state)
{
    /* each ends with a blank */
    static const char ends[] =
            ".weight .bias .weight.absmax .weight.quant_map "
            ".weight.nested_absmax .weight.nested_quant_map "
            ".weight.quant_state.bitsandbytes__nf4 "
            ".weight.quant_state.bitsandbytes__fp4 .SCB .weight_format "
            ".weight_scale_inv .lora_A.weight .lora_B.weight "
            ".lora_magnitude_vector .base_layer.weight .lora_embedding_A ";
    enum { ENDS = 16 };
    static const char prefix[] = "transformer.", base[] = "base_model.model.";
    const char *end;
    char name[FUZZ_NAME_BYTES], *found;
    size_t length = strlen(t->name);
    switch (fuzz_next(state) % 3) {
    case 0:
        t->name[fuzz_next(state) % length] = "abz01._"[fuzz_next(state) % 7];
        return;
    case 1: /* of a module */
        found = strstr(t->name, ".lora_");
        found = found ? found : strstr(t->name, ".weight");
        if (found)
            *found = '\0';
        end = ends;
        for (uint64_t n = fuzz_next(state) % ENDS; n > 0; n--)
            end = strchr(end, ' ') + 1;
        ZD_PRINT(name, "%.100s%.*s", t->name, (int)strcspn(end, " "), end);
        break;
    default:
        found = strstr(t->name, prefix);
        if (found) {
            memmove(found, found + strlen(prefix),
                    strlen(found + strlen(prefix)) + 1);
            return;
        }
        length = strncmp(t->name, base, strlen(base)) == 0 ? strlen(base) : 0;
        ZD_PRINT(
                name, "%.*s%s%.100s", (int)length, t->name, prefix,
                t->name + length);
    }
    strcpy(t->name, name);
}

static void reshape(struct fuzz_tensor *t, uint64_t *state)
{
    int d = t->dims ? (int)(fuzz_next(state) % (uint64_t)t->dims) : 0;
    int64_t first = t->shape[0];
    switch (fuzz_next(state) % 5) {
    case 0:
        t->shape[d] += t->dims ? 1 : 0;
        break;
    case 1:
        t->shape[d] -= t->shape[d] > 0;
        break;
    case 2:
        t->shape[0] = t->shape[d];
        t->shape[d] = first;
        break;
    case 3: /* none, of as many as there can be */
        t->shape[d] = 0;
        t->shape[(d + 1) % ST_DIMS_MAX] = INT32_MAX;
        t->dims = t->dims < 2 ? 2 : t->dims;
        break;
    default:
        if (t->dims < ST_DIMS_MAX)
            t->shape[t->dims++] = 1;
    }
}

static void change_data(struct fuzz_tensor *t, uint64_t *state)
{
    static const uint32_t words[] = {0, 0x7fc00000, 0x7f800000, 0xff7fffff,
                                     1, 0xffffffff, 0x80000000};
    if (t->bytes == 0)
        return;
    resize(t);
    if (strstr(t->name, ".quant_state.") && pool_used + 64 < sizeof pool) {
        t->bytes = fuzz_mutate(t->data, t->bytes, t->bytes + 64, state);
        pool_used += 64;
        t->dims = 1;
        t->shape[0] = (int64_t)t->bytes;
    } else if (t->bytes >= 4 && fuzz_next(state) % 2) {
        size_t at = (size_t)(fuzz_next(state) % (t->bytes / 4));
        memcpy(t->data + 4 * at, &words[fuzz_next(state) % 7], 4);
    } else {
        t->data[fuzz_next(state) % t->bytes] ^=
                (char)(1u << fuzz_next(state) % 8);
    }
}

void fuzz_tensors_change(struct fuzz_tensors *all, uint64_t *state)
{
    static const char *const types[] = {"F32", "F16",     "BF16", "U8",
                                        "I8",  "F8_E4M3", "I64",  "F64"};
    char name[FUZZ_NAME_BYTES];
    struct fuzz_tensor *t = &all->at[fuzz_next(state) % (uint64_t)all->count];
    struct fuzz_tensor *other =
            &all->at[fuzz_next(state) % (uint64_t)all->count];
    switch (fuzz_next(state) % 8) {
    case 0:
        if (all->count > 1)
            *t = all->at[--all->count];
        return;
    case 1:
        rename_tensor(t, state);
        return;
    case 2:
        if (all->count == FUZZ_TENSORS_MAX)
            return;
        other = &all->at[all->count++];
        *other = *t;
        other->file = !t->file;
        if (fuzz_next(state) % 4)
            rename_tensor(other, state);
        return;
    case 3:
        memcpy(name, t->name, sizeof name);
        memmove(t->name, other->name, sizeof name);
        memcpy(other->name, name, sizeof name);
        return;
    case 4:
        strcpy(t->dtype, types[fuzz_next(state) % 8]);
        resize(t);
        return;
    case 5:
        reshape(t, state);
        resize(t);
        return;
    default:
        change_data(t, state);
    }
}

void fuzz_tensors_write(
        const char *path, const struct fuzz_tensors *all, int file,
        uint64_t *state)
{
    static char image[IMAGE_BYTES];
    struct text_buffer header = {.out = image + 8, .bytes = 1 << 16};
    uint64_t begin = 0, bytes;
    ZD_EACH(t, all->at, all->count) {
        if (file >= 0 && t->file != file)
            continue;
        text_buffer_add(
                &header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                header.used ? "," : "{", t->name, t->dtype);
        for (int d = 0; d < t->dims; d++)
            text_buffer_add(
                    &header, "%s%lld", d ? "," : "", (long long)t->shape[d]);
        text_buffer_add(
                &header, "],\"data_offsets\":[%llu,%llu]}",
                (unsigned long long)begin,
                (unsigned long long)(begin + t->bytes));
        begin += t->bytes;
    }
    text_buffer_add(&header, header.used ? "}" : "{}");
    bytes = header.used;
    if (state && fuzz_next(state) % 16 == 0)
        bytes = fuzz_mutate(image + 8, (size_t)bytes, 1 << 16, state);
    memcpy(image, &bytes, 8);
    size_t used = 8 + (size_t)bytes;
    fuzz_need(
            used + begin <= sizeof image,
            "more tensors than an input may have");
    ZD_EACH(t, all->at, all->count) {
        if (file >= 0 && t->file != file)
            continue;
        memcpy(image + used, t->data, t->bytes);
        used += t->bytes;
    }
    FILE *out = fopen(path, "wb");
    fuzz_need(
            out && fwrite(image, 1, used, out) == used && fclose(out) == 0,
            path);
}
