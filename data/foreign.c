#include "data/foreign.h"

#include "base/text_buffer.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *magic;
    int bytes;
    const char *what;
    const char *help; /* how to make text of it: a command, and the path */
    bool takes_path;
    enum data_container container; /* files of that name are read */
} kinds[] = {
        {"PAR1", 4, "a Parquet table",
         "give it a name that ends in .parquet, and its rows are read", false,
         CONTAINER_PARQUET},
        {"ARROW1", 6, "an Arrow file",
         "python3 -c \"import pyarrow.feather as f, sys; "
         "f.read_feather(sys.argv[1]).to_json(sys.argv[1] + '.jsonl', "
         "orient='records', lines=True)\" ",
         true},
        {"\xff\xff\xff\xff", 4, "an Arrow stream",
         "python3 -c \"import datasets as d, sys; "
         "d.Dataset.from_file(sys.argv[1]).to_json(sys.argv[1] + "
         "'.jsonl')\" ",
         true},
        {"\x28\xb5\x2f\xfd", 4, "compressed by zstd",
         "give it a name that ends in .zst, and it is decompressed", false,
         CONTAINER_ZSTD},
        {"\x1f\x8b", 2, "compressed by gzip",
         "give it a name that ends in .gz, and it is decompressed", false,
         CONTAINER_GZIP},
        {"BZh", 3, "compressed by bzip2", "bunzip2 -k ", true},
        {"\xfd"
         "7zXZ",
         6, "compressed by xz", "unxz -k ", true},
        {"PK\3\4", 4, "a zip archive", "unzip ", true},
        {"\x89HDF", 4, "an HDF5 file", NULL, false},
        {"\x93NUMPY", 6, "an array of NumPy", NULL, false},
        {"SQLite format 3", 15, "an SQLite database", NULL, false},
        {"%PDF-", 5, "a PDF", "pdftotext ", true},
        {"version https://git-lfs.github.com/spec/", 40,
         "a pointer of Git LFS, not the data itself", "git lfs pull", false},
};

enum zd_status foreign_check(
        int fd, const char *path, enum data_container container)
{
    static const char *const names[] = {
            [CONTAINER_GZIP] = "a gzip file",
            [CONTAINER_ZSTD] = "a zstd file",
            [CONTAINER_PARQUET] = "a Parquet file"};
    char head[64], word[2 * PATH_MAX] = "";
    struct text_buffer text = {.out = word, .bytes = sizeof word};
    ssize_t bytes = pread(fd, head, sizeof head, 0);
    /* a frame that zstd skips, where pzstd has sizes */
    if (bytes >= 4 && (head[0] & 0xf0) == 0x50 &&
        memcmp(head + 1, "\x2a\x4d\x18", 3) == 0)
        memcpy(head, "\x28\xb5\x2f\xfd", 4);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (bytes < kinds[i].bytes ||
            memcmp(head, kinds[i].magic, (size_t)kinds[i].bytes) != 0)
            continue;
        if (container && kinds[i].container == container)
            return ZD_OK;
        ZD_FAIL(ZD_ERR_DATA, "E0431", "%s is %s; data is text or records", path,
                kinds[i].what);
        text_buffer_add_word(&text, path);
        if (kinds[i].help)
            zd_fail_help(
                    "%s%s", kinds[i].help, kinds[i].takes_path ? word : "");
        else
            zd_fail_help("write its texts as JSON Lines: {\"text\": \"...\"}");
        return ZD_ERR_DATA;
    }
    return container ? ZD_FAIL(ZD_ERR_DATA, "E0431", "%s is not %s", path,
                               names[container])
                     : ZD_OK;
}
