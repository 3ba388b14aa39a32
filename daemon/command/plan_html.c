/* plan_html.c - a plan as a page: one file, nothing fetched, no script.
 *
 * Bars are drawn by widths in per cent of the longest; a bar's parts are named
 * in a legend and, with their figures, in its title. */
#include "base/file/fs.h"
#include "base/text_buffer.h"
#include "daemon/command/cli.h"
#include "train/plan/advice.h"
#include "train/plan/explain.h"
#include "train/plan/search.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { RANKS_SHOWN = 8, FITS_SHOWN = 20 };

static const char head[] =
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta "
        "charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
        "'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, "
        "initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<link rel=\"icon\" href=\"data:,\">\n<title>zerod plan</title>\n"
        "<style>\n"
        ":root { --bg: #f4f5f7; --card: #fff; --line: #e2e5ea; --text: "
        "#1d232b; --muted: #5c6570; --c0: #2f66c9; --c1: #c77f14; --c2: "
        "#2b8a6e; --c3: #8a5cc2; --c4: #98a2b3; --c5: #b5475b }\n"
        "@media (prefers-color-scheme: dark) { :root { --bg: #0f1216; --card: "
        "#171b21; --line: #262c35; --text: #d9dfe7; --muted: #9aa5b4 } }\n"
        "* { box-sizing: border-box }\n"
        "body { margin: 0 auto; padding: 16px; max-width: 1200px; font: "
        "14px/1.5 "
        "system-ui, \"DejaVu Sans\", sans-serif; background: var(--bg); color: "
        "var(--text) }\n"
        "h1 { font-size: 18px } h2 { font-size: 14px; margin: 0 0 8px }\n"
        "section { background: var(--card); border: 1px solid var(--line); "
        "border-radius: 6px; padding: 12px 14px; margin: 12px 0; overflow-x: "
        "auto }\n"
        ".row { display: grid; grid-template-columns: 110px 1fr 90px; gap: "
        "8px; "
        "align-items: center; margin: 3px 0 }\n"
        ".row span { color: var(--muted); white-space: nowrap; overflow: "
        "hidden; text-overflow: ellipsis } .row span:last-child { text-align: "
        "right }\n"
        ".bar { display: flex; height: 14px; min-width: 0 } .bar i { display: "
        "block; height: 100% }\n"
        ".legend { color: var(--muted); margin: 6px 0 0 } .legend b { display: "
        "inline-block; width: 10px; height: 10px; margin: 0 4px 0 12px }\n"
        ".k0 { background: var(--c0) } .k1 { background: var(--c1) } .k2 { "
        "background: var(--c2) } .k3 { background: var(--c3) } .k4 { "
        "background: var(--c4) } .k5 { background: var(--c5) }\n"
        "table { border-collapse: collapse; width: 100%; min-width: 720px } "
        "td, th { text-align: "
        "left; padding: 3px 8px 3px 0; border-bottom: 1px solid var(--line); "
        "vertical-align: top; overflow-wrap: anywhere } .n { text-align: "
        "right; "
        "white-space: nowrap }\n"
        ".muted { color: var(--muted) } .row + p { margin: 0 0 8px }\n"
        "</style>\n</head>\n<body>\n";

static void escaped(const char *text, FILE *stream)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", stream);
            break;
        case '>':
            fputs("&gt;", stream);
            break;
        case '&':
            fputs("&amp;", stream);
            break;
        case '"':
            fputs("&quot;", stream);
            break;
        default:
            fputc(*text, stream);
        }
    }
}

/* --- bars ----------------------------------------------------------------- */

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

struct bar {
    const char *label, *unit;
    const char *const *names; /* of its parts */
    const double *parts;
    int count;
    double longest; /* of the bars beside it */
};

static void draw(const struct bar *bar, FILE *stream)
{
    double sum = 0;
    fputs("<div class=\"row\"><span>", stream);
    escaped(bar->label, stream);
    fputs("</span><div class=\"bar\">", stream);
    for (int i = 0; i < bar->count; i++) {
        sum += bar->parts[i];
        if (bar->parts[i] > 0)
            fprintf(stream,
                    "<i class=\"k%d\" style=\"width: %.3f%%\" title=\"%s %.4g "
                    "%s\"></i>",
                    i % 6, percent(bar->parts[i], bar->longest), bar->names[i],
                    bar->parts[i], bar->unit);
    }
    fprintf(stream, "</div><span>%.3g %s</span></div>\n", sum, bar->unit);
}

static void legend(const char *const *names, int count, FILE *stream)
{
    fputs("<p class=\"legend\">", stream);
    for (int i = 0; i < count; i++)
        fprintf(stream, "<b class=\"k%d\"></b>%s", i % 6, names[i]);
    fputs("</p>\n", stream);
}

/* --- sections ------------------------------------------------------------- */

enum { MEMORIES = 3 };
static const enum arena_memory shown[MEMORIES] = {
        ARENA_DEVICE, ARENA_HOST, ARENA_DISK};

/* Pinned memory is the host's. The driver's part is the device's. */
static void parts_of(
        const struct job_plan *plan, enum arena_memory memory,
        double parts[SPAN_KINDS + 1])
{
    const double gib = 1 << 30;
    for (int k = 0; k < SPAN_KINDS; k++) {
        parts[k] = (double)arena_plan_kind_bytes(
                &plan->arena, memory, (enum span_kind)k);
        if (memory == ARENA_HOST)
            parts[k] += (double)arena_plan_kind_bytes(
                    &plan->arena, ARENA_PINNED, (enum span_kind)k);
        parts[k] /= gib;
    }
    parts[SPAN_KINDS] =
            memory == ARENA_DEVICE ? (double)plan->context_bytes / gib : 0;
}

static void memory_section(const struct job_plan *plan, FILE *stream)
{
    const char *names[SPAN_KINDS + 1];
    double parts[MEMORIES][SPAN_KINDS + 1], longest = 0;
    int ranks = plan->world < RANKS_SHOWN ? plan->world : RANKS_SHOWN;
    for (int k = 0; k < SPAN_KINDS; k++)
        names[k] = span_kind_name((enum span_kind)k);
    names[SPAN_KINDS] = "driver and libraries";
    for (int m = 0; m < MEMORIES; m++) {
        double sum = 0;
        parts_of(plan, shown[m], parts[m]);
        for (int k = 0; k <= SPAN_KINDS; k++)
            sum += parts[m][k];
        longest = fmax(longest, sum);
    }
    fputs("<section id=\"memory\"><h2>What each rank holds</h2>\n", stream);
    for (int r = 0; r < ranks; r++)
        for (int m = 0; m < MEMORIES; m++) {
            char label[64];
            snprintf(
                    label, sizeof label, "rank %d %s", r,
                    arena_memory_name(shown[m]));
            const struct bar bar = {label,    "GiB",          names,
                                    parts[m], SPAN_KINDS + 1, longest};
            if (shown[m] != ARENA_DISK || plan->arena.bytes[ARENA_DISK])
                draw(&bar, stream);
        }
    legend(names, SPAN_KINDS + 1, stream);
    if (plan->world > ranks)
        fprintf(stream,
                "<p class=\"muted\">The other %d ranks hold the same.</p>\n",
                plan->world - ranks);
    fputs("</section>\n", stream);
}

static void time_section(const struct plan_page *page, FILE *stream)
{
    const struct plan_advice *advice = page->advice;
    const struct plan_prediction *predicted = &advice->predicted;
    static const char *const busy[] = {"at work"};
    const char *names[PLAN_PARTS];
    double longest = predicted->step_seconds;
    for (int p = 0; p < PLAN_PARTS; p++)
        names[p] = plan_part_name((enum plan_part)p);
    for (int r = 0; r < PLAN_RESOURCES; r++)
        longest = fmax(longest, predicted->busy[r]);
    const struct bar step = {"a step",         "s",        names,
                             predicted->parts, PLAN_PARTS, longest};
    fputs("<section id=\"time\"><h2>What a step takes</h2>\n", stream);
    draw(&step, stream);
    legend(names, PLAN_PARTS, stream);
    for (int r = 0; r < PLAN_RESOURCES; r++) {
        const struct bar bar = {
                plan_resource_name((enum plan_resource)r),
                "s",
                busy,
                &predicted->busy[r],
                1,
                longest};
        draw(&bar, stream);
    }
    fputs("<p class=\"muted\">", stream);
    escaped(page->machine->what, stream);
    fputs(page->machine->is_measured ? ", as measured. " : ", by its table. ",
          stream);
    fprintf(stream,
            "%.0f tokens/s; %s binds: twice as fast, a step would take %.3g "
            "s.",
            predicted->tokens_per_second, plan_resource_name(predicted->binds),
            advice->eased_seconds);
    if (advice->seconds > 0)
        fprintf(stream, " %" PRId64 " steps: %.3g days", advice->steps,
                advice->seconds / 86400);
    if (advice->seconds > 0 && advice->price > 0)
        fprintf(stream, ", %.2f at %g for a device and hour",
                advice->seconds / 3600 * advice->price * page->plan->world,
                advice->price);
    fputs("</p></section>\n", stream);
}

static void cell_bytes(double bytes, FILE *stream)
{
    if (isnan(bytes))
        fputs("<td class=\"n\"></td>", stream);
    else
        fprintf(stream, "<td class=\"n\">%.3f</td>", bytes / 1e9);
}

static void explain_section(const struct job_plan *plan, FILE *stream)
{
    struct explained rows[EXPLAINED_MAX];
    int count = plan_explain(plan, rows);
    fputs("<section id=\"explain\"><h2>As papers count it (GB of a rank)</h2>\n"
          "<table><tr><th></th><th class=\"n\">here</th><th class=\"n\">on "
          "paper</th><th>formula</th><th>source</th></tr>\n",
          stream);
    for (int i = 0; i < count; i++) {
        fprintf(stream, "<tr><td>%s</td>", rows[i].kind);
        cell_bytes(rows[i].bytes, stream);
        cell_bytes(rows[i].paper_bytes, stream);
        fprintf(stream, "<td>%s</td><td class=\"muted\">%s</td></tr>\n",
                rows[i].formula, rows[i].source);
    }
    fputs("</table></section>\n", stream);
}

static void fit_row(
        const struct plan_search *search, const struct plan_found *found,
        double longest, FILE *stream)
{
    static const char *const names[] = {"a step"};
    struct plan_setting settings[PLAN_SETTINGS_MAX];
    char words[800] = "";
    struct text_buffer text = {.out = words, .bytes = sizeof words};
    int count = plan_found_settings(search, found, settings);
    const struct bar bar = {
            plan_resource_name(found->predicted.binds),
            "s",
            names,
            &found->predicted.step_seconds,
            1,
            longest};
    settings_print(settings, count, &text);
    draw(&bar, stream);
    fprintf(stream,
            "<p class=\"muted\">%.2f GiB of the device, %.2f of the "
            "host: ",
            (double)found->device / (1 << 30), (double)found->host / (1 << 30));
    escaped(count ? words : "the job as it is", stream);
    fputs("</p>\n", stream);
}

static void fits_section(const struct plan_page *page, FILE *stream)
{
    int count = page->fit_count < FITS_SHOWN ? page->fit_count : FITS_SHOWN;
    if (!count)
        return;
    double longest = page->fits[count - 1].predicted.step_seconds;
    fprintf(stream,
            "<section id=\"fits\"><h2>Jobs of the same samples that "
            "fit, the fastest first (%d of %d; what binds, seconds a "
            "step)</h2>\n",
            count, page->fit_count);
    for (int i = 0; i < count; i++)
        fit_row(page->search, &page->fits[i], longest, stream);
    fputs("</section>\n", stream);
}

enum zd_status plan_html_write(const struct plan_page *page, const char *path)
{
    const struct job_plan *plan = page->plan;
    char model[160], *out = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&out, &bytes);
    if (!stream)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory writing a page");
    model_config_describe(&plan->config, model, sizeof model);
    fputs(head, stream);
    fputs("<h1>", stream);
    escaped(model, stream);
    fprintf(stream, ": %d rank%s, ZeRO stage %d</h1>\n", plan->world,
            plan->world == 1 ? "" : "s", plan->zero.request.options.stage);
    memory_section(plan, stream);
    time_section(page, stream);
    explain_section(plan, stream);
    fits_section(page, stream);
    fputs("</body>\n</html>\n", stream);
    enum zd_status status = ZD_ERR_MEMORY;
    if (fclose(stream) == 0)
        status = fs_write_file(path, out, bytes);
    else
        ZD_FAIL(status, "E0602", "out of memory writing a page");
    free(out);
    return status;
}
