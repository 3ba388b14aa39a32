#include "daemon/reference/man.h"

#include "base/text_stream.h"
#include "daemon/reference/key_text.h"
#include "daemon/reference/roff.h"

#include <stdlib.h>
#include <string.h>

static const char *const rules[] = {
        "A job file is TOML, with one section for each part of the program. "
        "Every key is optional but for a model (`model.path` or "
        "[model.config]) and something to train on ([[data.train]]).",
        "An unknown key, a wrong type, a value out of range and settings that "
        "contradict each other are errors, all of them reported in one run. "
        "`zerod validate` shows them without starting anything, and with "
        "`--print` every value and where it came from.",
        "Integers may be written `5e8`; sizes \"64MiB\", \"5GB\" or a number "
        "of bytes; times \"90s\", \"30m\", \"1h30m\". Words are not "
        "case-sensitive. Paths are relative to the directory in which `zerod` "
        "is started.",
        "`--set section.key=value` on the command line overrides the file.",
};

static const char example[] = "[model]\n"
                              "path = \"models/Llama-3.2-1B\"\n"
                              "\n"
                              "[data]\n"
                              "cutoff_len = 2048\n"
                              "[[data.train]]\n"
                              "path = \"data/*.jsonl\"\n"
                              "\n"
                              "[train]\n"
                              "num_train_epochs = 1.0\n"
                              "global_batch_size = 64\n"
                              "per_device_train_batch_size = 1\n"
                              "\n"
                              "[zero]\n"
                              "stage = 3\n";

static void put_line(
        FILE *stream, const char *before,
        void (*put)(FILE *, const struct schema_key *),
        const struct schema_key *key, const char *after)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *line = text_stream_open(&text, &bytes);
    fputs(before, line);
    put(line, key);
    fputs(after, line);
    fclose(line);
    roff_text(stream, text);
    free(text);
}

static void put_section(FILE *stream, const char *section)
{
    char *title = NULL;
    size_t bytes = 0;
    FILE *line = text_stream_open(&title, &bytes);
    key_put_section(line, section);
    fclose(line);
    roff_subheading(stream, title);
    free(title);
    const char *note = schema_section_note(section);
    if (!note)
        return;
    line = text_stream_open(&title, &bytes);
    fprintf(line, "%s.", note);
    fclose(line);
    roff_text(stream, title);
    free(title);
}

static void put_key(FILE *stream, const struct schema_key *key)
{
    fputs(".TP\n.B ", stream);
    roff_inline(stream, key->name);
    fputc('\n', stream);
    put_line(stream, "", key_put_help, key, ".");
    fputs(".br\n", stream);
    put_line(stream, "Accepts: ", key_put_accepts, key, ".");
    fputs(".br\n", stream);
    put_line(stream, "Default: ", key_put_default, key, ".");
}

static void put_missing(FILE *stream)
{
    const char *blank = "";
    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *key = &schema_table[i];
        if (key_is_available(key))
            continue;
        fprintf(stream, "%s\\fB%s.%s\\fR", blank, key->section, key->name);
        blank = ",\n";
    }
    fputs(".\n", stream);
}

void man_put_job(FILE *stream)
{
    roff_begin(stream, "job.toml", 5);
    roff_heading(stream, "NAME");
    fputs("job.toml \\- a training job of zerod\n", stream);
    roff_heading(stream, "DESCRIPTION");
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        fputs(i ? ".PP\n" : "", stream);
        roff_text(stream, rules[i]);
    }
    roff_heading(stream, "KEYS");
    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *key = &schema_table[i];
        if (key_begins_section(key))
            put_section(stream, key->section);
        if (key_is_available(key))
            put_key(stream, key);
    }
    roff_heading(stream, "NOT AVAILABLE YET");
    roff_text(
            stream,
            "These may be given only the value that means off or \"decide "
            "yourself\":");
    put_missing(stream);
    roff_heading(stream, "EXAMPLES");
    roff_example(stream, example);
    roff_heading(stream, "SEE ALSO");
    fputs(".BR zerod (1),\n.BR zerodctl (1)\n", stream);
}
