#include "base/library.h"
#include "tests/support/scratch_suite.h"

#include <dlfcn.h>
#include <unistd.h>

TestSuite(library, IN_SCRATCH);

/* The C library's mathematics under another name, below our folder. */
static void plant(const char *below, const char *name)
{
    char link[PATH_MAX];
    Dl_info info;
    void *math = dlopen("libm.so.6", RTLD_NOW);
    cr_assert(math && dladdr(dlsym(math, "tgamma"), &info));
    MUST(fs_make_dirs(scratch_path(&scratch, below)));
    fs_join(link, sizeof link, scratch.path, name);
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

Test(library, a_missing_library_is_named)
{
    cr_assert_null(open_one("libzerod-nowhere.so.1"));
    cr_assert_null(open_one("/tmp/libzerod-nowhere.so.1"));
}

Test(library, ZEROD_LIBRARY_PATH_is_searched_first)
{
    char list[256];
    plant("two", "libzerod-planted.so.1");
    ZD_PRINT(list, "%s/one::%s/two", scratch.dir, scratch.dir);
    cr_assert_null(open_one("libzerod-planted.so.1"));
    setenv("ZEROD_LIBRARY_PATH", list, 1);
    void *library = open_one("libzerod-planted.so.1");
    cr_assert(library && dlsym(library, "tgamma"));
}

Test(library, packages_of_python_are_searched)
{
    plant("lib/python3.99/site-packages/nvidia/cu13/lib",
          "libzerod-planted.so.1");
    setenv("VIRTUAL_ENV", scratch.dir, 1);
    cr_assert(open_one("libzerod-planted.so.1"));
}

Test(library, the_second_name_is_accepted)
{
    const char *const names[] = {"libzerod-nowhere.so.2", "libm.so.6", NULL};
    char why[256];
    cr_assert(library_open(names, why, sizeof why));
}
