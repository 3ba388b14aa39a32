#include "base/suggest.h"
#include "daemon/job/schema.h"

#include <criterion/criterion.h>
#include <string.h>

Test(schema, every_key_is_named_once_and_says_what_it_does)
{
    ZD_EACH(key, schema_table, schema_count) {
        char accepts[256];
        cr_expect_eq(
                schema_find(key->section, key->name), key, "%s.%s",
                key->section, key->name);
        cr_expect(key->help && key->help[0], "%s.%s", key->section, key->name);
        schema_accepts(key, accepts, sizeof accepts);
        cr_expect(accepts[0], "%s.%s", key->section, key->name);
        if (key->type == SCHEMA_ENUM)
            cr_expect(key->choices, "%s.%s", key->section, key->name);
    }
}

Test(schema, no_two_available_keys_share_a_field)
{
    for (int i = 0; i < schema_count; i++)
        for (int j = 0; j < i; j++) {
            const struct schema_key *a = &schema_table[i];
            const struct schema_key *b = &schema_table[j];
            bool is_entry = strncmp(a->section, "data.", 5) == 0;
            if (a->section[0] == '\0' || b->section[0] == '\0' ||
                (is_entry && strcmp(a->section, b->section)) ||
                (!is_entry && strncmp(b->section, "data.", 5) == 0))
                continue;
            cr_expect(
                    a->offset != b->offset, "%s.%s and %s.%s", a->section,
                    a->name, b->section, b->name);
        }
}

Test(schema, edits_are_counted)
{
    cr_expect_eq(edit_distance("abc", "abc"), 0);
    cr_expect_eq(edit_distance("abc", "ABC"), 0);
    cr_expect_eq(edit_distance("abc", "acb"), 1);
    cr_expect_eq(edit_distance("abc", "ab"), 1);
    cr_expect_eq(edit_distance("kitten", "sitting"), 3);
    cr_expect_eq(edit_distance("", "abc"), 3);
}
