/* names.h - what the name of a data file says of its content. */
#ifndef ZD_DATA_NAMES_H
#define ZD_DATA_NAMES_H

#include "data/source.h"

enum name_kind { NAME_OTHER, NAME_TEXT, NAME_RECORDS, NAME_TABLE };

/* In either case: a.JSONL is a.jsonl. */
bool name_ends_with(const char *path, const char *end);
enum data_container name_container(const char *path);
/* Of what is inside the container: a.jsonl.gz is records. */
enum name_kind name_kind(const char *path);

#endif
