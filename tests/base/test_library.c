#include "base/file/fs.h"
#include "base/library.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static void begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/zerod-library-%d", (int)getpid());
}

static void end(void)
{
    fs_remove_tree(folder);
}

/* The C library's mathematics under another name, below our folder. */
static void plant(const char *below, const char *name)
{
    char at[PATH_MAX], link[PATH_MAX];
    Dl_info info;
    void *math = dlopen("libm.so.6", RTLD_NOW);
    cr_assert(math && dladdr(dlsym(math, "tgamma"), &info));
    snprintf(at, sizeof at, "%s/%s", folder, below);
    cr_assert_eq(fs_make_dirs(at), ZD_OK);
    fs_join(link, sizeof link, at, name);
    cr_assert_eq(symlink(info.dli_fname, link), 0);
}

static void *open_one(const char *name)
{
    const char *const names[] = {name, NULL};
    char why[256];
    void *library = library_open(names, why, sizeof why);
    cr_assert(library || strstr(why, name), "%s", why);
    return library;
}

Test(library, a_missing_library_is_named, .init = begin, .fini = end)
{
    cr_assert_null(open_one("libzerod-nowhere.so.1"));
    cr_assert_null(open_one("/tmp/libzerod-nowhere.so.1"));
}

Test(library, ZEROD_LIBRARY_PATH_is_searched_first, .init = begin, .fini = end)
{
    char list[256];
    plant("two", "libzerod-planted.so.1");
    snprintf(list, sizeof list, "%s/one::%s/two", folder, folder);
    cr_assert_null(open_one("libzerod-planted.so.1"));
    setenv("ZEROD_LIBRARY_PATH", list, 1);
    void *library = open_one("libzerod-planted.so.1");
    cr_assert(library && dlsym(library, "tgamma"));
}

Test(library, packages_of_python_are_searched, .init = begin, .fini = end)
{
    plant("lib/python3.99/site-packages/nvidia/cu13/lib",
          "libzerod-planted.so.1");
    setenv("VIRTUAL_ENV", folder, 1);
    cr_assert(open_one("libzerod-planted.so.1"));
}

Test(library, the_second_name_is_accepted, .init = begin, .fini = end)
{
    const char *const names[] = {"libzerod-nowhere.so.2", "libm.so.6", NULL};
    char why[256];
    cr_assert(library_open(names, why, sizeof why));
}
