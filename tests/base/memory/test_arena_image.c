#include "base/file/fs.h"
#include "base/memory/arena_image.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PARAMS = 5 * ARENA_IMAGE_BLOCK + 100, ACTS = 4 * ARENA_IMAGE_BLOCK };

struct fixture {
    struct arena_plan plan;
    struct arena arena;
    struct scratch scratch;
    char *params, *acts, *tail, *copy, path[PATH_MAX];
};

/* Blocks 0 and 3 of the parameters have values, and the last bytes of all. */
static void begin(struct fixture *f)
{
    arena_plan_init(&f->plan);
    arena_plan_add(&f->plan, "p", ARENA_DEVICE, SPAN_PARAMS, PARAMS);
    arena_plan_add(&f->plan, "a", ARENA_DEVICE, SPAN_ACTIVATIONS, ACTS);
    arena_plan_add(&f->plan, "t", ARENA_DEVICE, SPAN_BUFFERS, 1000);
    cr_assert_eq(arena_take(&f->arena, &f->plan), ZD_OK);
    f->params = arena_span(&f->arena, "p");
    f->acts = arena_span(&f->arena, "a");
    f->tail = arena_span(&f->arena, "t");
    f->params[0] = 1;
    memset(f->params + 3 * ARENA_IMAGE_BLOCK, 7, 3000);
    memset(f->acts, 9, ACTS);
    f->tail[999] = 3;
    f->copy = malloc(f->arena.taken_bytes[ARENA_DEVICE]);
    memcpy(f->copy, f->params, f->arena.taken_bytes[ARENA_DEVICE]);
    scratch_init(&f->scratch);
    strcpy(f->path, scratch_path(&f->scratch, "image"));
}

static void end(struct fixture *f)
{
    scratch_fini(&f->scratch);
    free(f->copy);
    arena_release(&f->arena);
    arena_plan_fini(&f->plan);
}

static size_t resident_pages(const struct arena *arena)
{
    size_t pages = (arena->taken_bytes[ARENA_DEVICE] + 4095) / 4096, count = 0;
    unsigned char *in = calloc(pages, 1);
    cr_assert_eq(
            mincore(arena->base[ARENA_DEVICE], arena->taken_bytes[ARENA_DEVICE],
                    in),
            0);
    for (size_t i = 0; i < pages; i++)
        count += in[i] & 1;
    free(in);
    return count;
}

Test(arena_image, what_was_given_back_comes_back_at_its_address)
{
    struct fixture f;
    struct arena_image image;
    begin(&f);
    cr_assert_eq(arena_image_scan(&f.arena, ARENA_DEVICE, &image), ZD_OK);
    cr_assert_eq(arena_image_write(&f.arena, &image, f.path), ZD_OK);
    cr_assert_eq(arena_give_back(&f.arena, ARENA_DEVICE), ZD_OK);
    cr_expect_eq(resident_pages(&f.arena), 0);
    cr_expect_eq(f.params[0], 0);
    cr_assert_eq(arena_image_read(&f.arena, &image, f.path), ZD_OK);
    cr_expect_eq(memcmp(f.params, f.copy, PARAMS), 0);
    cr_expect_eq(memcmp(f.tail, f.copy + (f.tail - f.params), 1000), 0);
    arena_image_fini(&image);
    end(&f);
}

Test(arena_image, zeros_and_activations_are_not_written)
{
    struct fixture f;
    struct arena_image image;
    uint64_t bytes;
    int fd;
    begin(&f);
    cr_assert_eq(arena_image_scan(&f.arena, ARENA_DEVICE, &image), ZD_OK);
    cr_assert_eq(arena_image_write(&f.arena, &image, f.path), ZD_OK);
    cr_assert_eq(fs_open_read(f.path, &fd, &bytes), ZD_OK);
    close(fd);
    /* blocks 0 and 3; the two that hold an edge of the activations too */
    cr_expect_eq(bytes, image.bytes);
    cr_expect_geq(bytes, 3 * ARENA_IMAGE_BLOCK);
    cr_expect_lt(bytes, 5 * ARENA_IMAGE_BLOCK);
    arena_image_fini(&image);
    end(&f);
}

static void flip(const char *path, off_t offset)
{
    char byte;
    int fd = open(path, O_RDWR);
    cr_assert_eq(pread(fd, &byte, 1, offset), 1);
    byte ^= 16;
    cr_assert_eq(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

Test(arena_image, a_changed_or_short_file_is_refused)
{
    struct fixture f;
    struct arena_image image;
    begin(&f);
    cr_assert_eq(arena_image_scan(&f.arena, ARENA_DEVICE, &image), ZD_OK);
    cr_assert_eq(arena_image_write(&f.arena, &image, f.path), ZD_OK);
    flip(f.path, 70000);
    cr_expect_eq(arena_image_read(&f.arena, &image, f.path), ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->code, "E1021");
    zd_error_clear();
    flip(f.path, 70000);
    cr_expect_eq(arena_image_read(&f.arena, &image, f.path), ZD_OK);
    cr_assert_eq(truncate(f.path, 100000), 0);
    cr_expect_eq(arena_image_read(&f.arena, &image, f.path), ZD_ERR_DATA);
    arena_image_fini(&image);
    end(&f);
}

Test(arena_image, a_file_that_is_there_is_left_alone)
{
    struct fixture f;
    struct arena_image image;
    char *text;
    begin(&f);
    cr_assert_eq(fs_write_file(f.path, "mine", 4), ZD_OK);
    cr_assert_eq(arena_image_scan(&f.arena, ARENA_DEVICE, &image), ZD_OK);
    cr_expect_eq(arena_image_write(&f.arena, &image, f.path), ZD_ERR_CREATE);
    cr_assert_eq(fs_read_file(f.path, 100, &text, NULL), ZD_OK);
    cr_expect_str_eq(text, "mine");
    free(text);
    arena_image_fini(&image);
    end(&f);
}
