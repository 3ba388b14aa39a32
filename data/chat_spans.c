/* chat_spans.c - which text of a rendered conversation is whose, for templates
 * without {% generation %}.
 *
 *   skeleton <|im_start|>user\n[0]<|im_end|>\n<|im_start|>assistant\n[1]...
 *   prompt   <|im_start|>user\n[0]<|im_end|>\n<|im_start|>assistant\n
 *
 * A message's range begins where the prompt ends, which is the skeleton of the
 * messages before it with add_generation_prompt, and ends where the skeleton of
 * the messages up to it does, without the white space at its end. A template
 * that looks ahead (Qwen3 drops thoughts of earlier turns) makes other text of
 * these; then only what they add to the last mark is looked for around the
 * message's marks.
 *
 * A template that looks into the words of users is tried again with marks for
 * the assistant alone, one that escapes or quotes words, or leaves out calls,
 * with marks for pieces of them, and one that looks into all without any. */
#include "data/chat_skeleton.h"

#include <ctype.h>
#include <string.h>

/* --- the edges of a message ----------------------------------------------- */

/* Of the template's own text around a message, in the skeleton. */
struct around {
    size_t before, first; /* between the mark before it and its first one */
    size_t last, after;   /* between its last one and the next */
};

/* Where a message has its marks; false: others lie between them. */
static bool find_around(
        const struct skeleton *s, size_t message, struct around *out)
{
    const struct message_place *of = &s->of[message];
    if (of->is_torn)
        return false;
    out->before =
            of->first > 0 ? s->shape.places[of->first - 1].at + MARK_BYTES : 0;
    out->first = s->shape.places[of->first].at;
    out->last = s->shape.places[of->last].at + MARK_BYTES;
    out->after = of->last + 1 < s->shape.place_count
                         ? s->shape.places[of->last + 1].at
                         : s->shape.text.bytes;
    return true;
}

static bool is_prefix(
        const struct jinja_output *text, const struct jinja_output *of)
{
    return text->bytes <= of->bytes &&
           (text->bytes == 0 || memcmp(text->text, of->text, text->bytes) == 0);
}

/* `length` bytes of `text` that go on otherwise: without what may be the begin
 * of a marker, as "<|" is. */
static size_t without_begun_marker(const char *text, size_t length)
{
    for (size_t at = length; at-- > 0 && text[at] != '>';)
        if (text[at] == '<')
            return at;
    return length;
}

/* What was found between the same texts; NO_PLACE: nothing yet. */
static size_t known_edge(
        const struct skeleton *s, const struct edges *edges, size_t from,
        size_t to)
{
    const char *text = s->shape.text.text;
    for (size_t i = 0; i < CHAT_EDGES && i < edges->count; i++) {
        const struct edge *edge = &edges->of[i];
        if (edge->bytes == to - from &&
            memcmp(text + edge->from, text + from, edge->bytes) == 0)
            return from + edge->found;
    }
    return NO_PLACE;
}

static void learn(struct edges *edges, size_t from, size_t to, size_t found)
{
    if (found != NO_PLACE)
        edges->of[edges->count++ % CHAT_EDGES] =
                (struct edge){from, to - from, found - from};
}

/* What a template adds to messages. */
struct added {
    const char *text;
    size_t bytes;
};

/* Where the generation prompt ends in [from, to). What it begins with its last
 * markers may be missing there, as <think> is in earlier turns. NO_PLACE: not
 * found. */
static size_t find_prompt(
        struct added prompt, const char *text, size_t from, size_t to)
{
    for (size_t length = prompt.bytes; length > 0;) {
        for (size_t at = to; at-- > from;)
            if (at + length <= to &&
                memcmp(text + at, prompt.text, length) == 0)
                return at + length;
        do
            length--;
        while (length > 0 && prompt.text[length] != '<');
    }
    return NO_PLACE;
}

/* What add_generation_prompt adds after the first `count` messages or, where
 * these are refused or it is A_USER, after one of a user. */
static struct added generation_prompt(struct skeleton *s, size_t count)
{
    const struct jinja_output *with = skeleton_text(s, count, true);
    const struct jinja_output *without = skeleton_text(s, count, false);
    size_t same = 0;
    if (!with || !without)
        return count == A_USER ? (struct added){NULL, 0}
                               : generation_prompt(s, A_USER);
    while (same < with->bytes && same < without->bytes &&
           with->text[same] == without->text[same])
        same++;
    if (same < without->bytes)
        same = without_begun_marker(with->text, same);
    return (struct added){with->text + same, with->bytes - same};
}

/* Where the text around a message has its begin, in the skeleton; NO_PLACE: not
 * found. */

/* After the generation prompt of the first `count` messages. With A_USER: where
 * theirs is not what the text has, as Gemma 4's after a tool's. */
static size_t find_header(
        struct skeleton *s, size_t count, const struct around *around)
{
    size_t at = find_prompt(
            generation_prompt(s, count), s->shape.text.text, around->before,
            around->first);
    learn(&s->begins, around->before, around->first, at);
    return at;
}

static size_t find_begin(
        struct skeleton *s, size_t message, const struct around *around)
{
    size_t at = known_edge(s, &s->begins, around->before, around->first);
    if (at != NO_PLACE)
        return at;
    const struct jinja_output *prompt = skeleton_text(s, message, true);
    if (!prompt || !is_prefix(prompt, &s->shape.text) ||
        prompt->bytes < around->before || prompt->bytes > around->first)
        return find_header(s, message, around);
    learn(&s->begins, around->before, around->first, prompt->bytes);
    return prompt->bytes;
}

/* Bytes of the end mark at `text`, of which `alone` follows the message where
 * it is the last one; NO_PLACE: it cannot be told. A message that the next one
 * may go on from needs none. */
static size_t end_mark(
        const char *text, size_t bytes, const char *alone, size_t alone_bytes,
        bool may_go_on)
{
    size_t same = 0;
    alone_bytes = chat_strip_end(alone, alone_bytes);
    while (same < bytes && same < alone_bytes && text[same] == alone[same])
        same++;
    if (same == alone_bytes)
        return same;
    size_t spaces = without_begun_marker(alone, same);
    same = chat_strip_end(alone, spaces);
    if (same > 0)
        return same;
    /* another mark, as gpt-oss has <|return|> and <|end|> */
    bool has_mark = spaces < bytes && text[spaces] == '<';
    const char *close =
            has_mark ? memchr(text + spaces, '>', bytes - spaces) : NULL;
    if (close)
        return (size_t)(close + 1 - text);
    return may_go_on ? spaces : NO_PLACE;
}

/* The last mark of a message in a text: its word, how often it is there, and
 * where it ends. */
struct last_mark {
    size_t word, times, end;
};

/* `times` 0: there is none. */
static struct last_mark find_last_mark(
        const struct skeleton *s, const struct jinja_output *text,
        size_t message)
{
    const struct chat_memory *memory = s->renderer->memory;
    const char *at = text->text, *end = at + text->bytes;
    struct last_mark found = {0};
    for (; (at = jinja_find_mark(at, (size_t)(end - at))); at += MARK_BYTES) {
        size_t word = jinja_mark_word(at);
        if (word >= memory->word_count ||
            memory->words[word].message != message)
            continue;
        found.times = word == found.word ? found.times + 1 : 1;
        found.word = word;
        found.end = (size_t)(at - text->text) + MARK_BYTES;
    }
    return found;
}

/* Without the marks that a later message repeats: the message's own end with
 * this word, the n-th time. */
static void leave_repeated(
        const struct skeleton *s, size_t message, struct last_mark mark,
        struct around *around)
{
    const struct place *places = s->shape.places;
    for (size_t p = s->of[message].first; p < s->of[message].last; p++) {
        mark.times -= places[p].word == mark.word;
        if (mark.times > 0)
            continue;
        around->last = places[p].at + MARK_BYTES;
        around->after = places[p + 1].at;
        return;
    }
}

static size_t find_end(
        struct skeleton *s, size_t message, struct around *around)
{
    const char *text = s->shape.text.text;
    bool repeats = s->of[message].repeats;
    size_t last = around->last, found = NO_PLACE;
    if (message + 1 == json_array_size(s->messages))
        return last + chat_strip_end(text + last, around->after - last);
    if (!repeats)
        found = known_edge(s, &s->ends, last, around->after);
    if (found != NO_PLACE)
        return found;
    const struct jinja_output *upto = skeleton_text(s, message + 1, false);
    struct last_mark mark = {0};
    if (upto)
        mark = find_last_mark(s, upto, message);
    if (mark.times == 0)
        return NO_PLACE;
    if (repeats)
        leave_repeated(s, message, mark, around);
    size_t bytes = end_mark(
            text + around->last, around->after - around->last,
            upto->text + mark.end, upto->bytes - mark.end,
            s->renderer->talk->turns[message + 1].is_assistant);
    if (bytes != NO_PLACE)
        found = around->last + bytes;
    if (!repeats)
        learn(&s->ends, around->last, around->after, found);
    return found;
}

/* Where a message goes on in the turn of the one before it, without a
 * generation prompt: after the end of that. */
static size_t find_seam(
        struct skeleton *s, size_t message, const struct around *around)
{
    const char *text = s->shape.text.text;
    struct around before;
    if (message == 0 || !s->renderer->talk->turns[message - 1].is_assistant ||
        !s->of[message - 1].has || !find_around(s, message - 1, &before))
        return NO_PLACE;
    size_t at = find_end(s, message - 1, &before);
    while (at < around->first && isspace((unsigned char)text[at]))
        at++;
    return at;
}

/* Where nothing is the generation prompt, and the texts before the message are
 * other ones, as Mistral's with a message of the system: after what follows the
 * words of the message before it where that is the last one. */
static size_t find_answer(
        struct skeleton *s, size_t message, const struct around *around)
{
    const struct message_place *before =
            message > 0 ? &s->of[message - 1] : NULL;
    if (!before || !before->has || before->is_torn || before->repeats ||
        before->last + 1 != s->of[message].first)
        return NO_PLACE;
    const struct jinja_output *prompt = skeleton_text(s, message, true);
    const struct jinja_output *plain = skeleton_text(s, message, false);
    if (!prompt || !plain || prompt->bytes != plain->bytes ||
        !is_prefix(prompt, plain))
        return NO_PLACE;
    struct last_mark mark = find_last_mark(s, plain, message - 1);
    size_t bytes = plain->bytes - mark.end;
    bool follows = mark.times > 0 && bytes <= around->first - around->before &&
                   memcmp(s->shape.text.text + around->before,
                          plain->text + mark.end, bytes) == 0;
    return follows ? around->before + bytes : NO_PLACE;
}

/* --- ranges --------------------------------------------------------------- */

/* Each leaves NO_PLACE in the range what it does not find. */

/* By the texts before and up to a message, where both begin the skeleton, or
 * are the same since the template prints nothing of the message. */
static void find_by_prefix(
        struct skeleton *s, size_t message, struct text_range *range)
{
    static const struct jinja_output nothing;
    const struct jinja_output *whole = &s->shape.text;
    bool is_whole = s->renderer->memory->is_whole;
    const struct jinja_output *plain =
            message > 0 ? skeleton_text(s, message, false) : &nothing;
    const struct jinja_output *before =
            is_whole ? plain : skeleton_text(s, message, true);
    const struct jinja_output *upto = skeleton_text(s, message + 1, false);
    if (!plain || !before || !upto)
        return;
    bool is_nothing = message > 0 && plain->bytes == upto->bytes &&
                      is_prefix(plain, upto);
    bool is_added = is_prefix(before, whole) && is_prefix(upto, whole);
    if (!is_nothing && !is_added)
        return;
    size_t end =
            is_whole ? upto->bytes : chat_strip_end(upto->text, upto->bytes);
    size_t begin = before->bytes < whole->bytes ? before->bytes : whole->bytes;
    *range = (struct text_range){
            begin, !is_nothing && end > begin ? end : begin};
}

/* Of a message whose words the template leaves out, and which is the only one
 * of the assistant between two marks: after the last generation prompt there.
 */
static void find_bare(
        struct skeleton *s, size_t message, struct text_range *range)
{
    const struct word *words = s->renderer->memory->words;
    const struct place *places = s->shape.places;
    const char *text = s->shape.text.text;
    size_t p = 0, count = s->shape.place_count;
    while (p < count && words[places[p].word].message < message)
        p++;
    size_t from = p > 0 ? places[p - 1].at + MARK_BYTES : 0;
    size_t to = p < count ? places[p].at : s->shape.text.bytes;
    size_t i = p > 0 ? words[places[p - 1].word].message + 1 : 0;
    size_t end = p < count ? words[places[p].word].message + 1
                           : json_array_size(s->messages);
    for (; i < end; i++)
        if (i != message && s->renderer->talk->turns[i].is_assistant)
            return;
    struct added prompt = generation_prompt(s, message);
    const struct jinja_output *upto = skeleton_text(s, message + 1, false);
    if (!upto)
        return;
    size_t alone = find_prompt(prompt, upto->text, 0, upto->bytes);
    size_t begin = find_prompt(prompt, text, from, to);
    if (begin == NO_PLACE || alone == NO_PLACE)
        return;
    size_t mark = end_mark(
            text + begin, to - begin, upto->text + alone, upto->bytes - alone,
            false);
    *range = (struct text_range){
            begin, mark == NO_PLACE ? NO_PLACE : begin + mark};
}

static void find_range(
        struct skeleton *s, size_t message, struct text_range *range)
{
    struct around around = {0};
    const struct message_place *of = &s->of[message];
    if (s->renderer->memory->is_whole || !of->has) {
        find_by_prefix(s, message, range);
        if (range->begin != NO_PLACE || s->marked == MARKS_NONE ||
            !s->renderer->talk->turns[message].is_assistant)
            return;
    }
    if (!of->has)
        find_bare(s, message, range);
    if (!of->has || !find_around(s, message, &around))
        return;
    size_t begin = find_begin(s, message, &around);
    if (begin == NO_PLACE)
        begin = find_seam(s, message, &around);
    if (begin == NO_PLACE)
        begin = find_answer(s, message, &around);
    if (begin == NO_PLACE)
        begin = find_header(s, A_USER, &around);
    if (begin != NO_PLACE)
        *range = (struct text_range){begin, find_end(s, message, &around)};
}

/* The message, from 1, whose range is not found; 0: none. */
static size_t find_ranges(struct skeleton *s)
{
    const struct chat_memory *memory = s->renderer->memory;
    for (size_t i = 0; i < json_array_size(s->messages); i++) {
        struct text_range range = {NO_PLACE, NO_PLACE};
        if (!memory->wanted[i])
            continue;
        find_range(s, i, &range);
        if (range.begin == NO_PLACE || range.end == NO_PLACE)
            return i + 1;
        if (range.begin < range.end || memory->is_whole)
            shape_train(&s->shape, range.begin, range.end);
    }
    return 0;
}

/* The first message, from 1, that is wanted and has words of another one
 * between its own, as Gemma 4 puts a tool's answer between calls and content;
 * 0: none. */
static size_t find_torn(const struct skeleton *s)
{
    const struct chat_memory *memory = s->renderer->memory;
    for (size_t i = 0; i < json_array_size(s->messages); i++)
        if (memory->wanted[i] && s->of[i].is_torn && !memory->is_whole)
            return i + 1;
    return 0;
}

static enum zd_status fail_missing(const struct chat *chat, size_t message)
{
    ZD_BAD("E0417",
           "it cannot be told which text of the chat template is of message "
           "%zu (%s)",
           message, chat->name);
    return zd_fail_help(
            "\"train\": false leaves the message out of the loss; a template "
            "with {%% generation %%} around the assistant's text "
            "(data.chat_template = \"PATH\") says what to train; "
            "data.train_on = \"all\" trains everything");
}

enum zd_status chat_find_spans(
        struct chat_renderer *renderer, struct shape *known,
        struct document *document)
{
    struct chat_memory *memory = renderer->memory;
    size_t missing = 1, first = 0;
    if (known && shape_explains(known, memory, &renderer->text)) {
        shape_apply(known, document);
        return ZD_OK;
    }
    enum zd_status status = ZD_OK;
    for (int marked = known ? MARKS_ASSISTANT : MARKS_ALL;
         missing && status == ZD_OK && marked <= MARKS_NONE; marked++) {
        struct skeleton s = {.renderer = renderer};
        if (marked != MARKS_ALL)
            chat_write_key(renderer, (enum marked)marked);
        skeleton_make(&s, (enum marked)marked);
        /* marks of the assistant alone do not show it */
        size_t torn = s.is_sound && marked == MARKS_ALL ? find_torn(&s) : 0;
        if (torn)
            s.status = fail_missing(renderer->chat, torn);
        else if (s.is_sound)
            missing = find_ranges(&s);
        status = s.status;
        if (status == ZD_OK && s.is_sound && !missing) {
            shape_apply(&s.shape, document);
            if (marked == MARKS_ALL)
                chat_keep_shape(memory, &s.shape);
        }
        if (!first && s.is_sound)
            first = missing;
        skeleton_fini(&s);
    }
    ZD_TRY(status);
    return missing ? fail_missing(renderer->chat, first ? first : 1) : ZD_OK;
}
