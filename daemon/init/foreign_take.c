/* foreign_take.c - converts a file. Conversions that a table cannot express are
 * here: they depend on other keys, the model or the data. */
#include "base/file/fs.h"
#include "base/must.h"
#include "base/text_buffer.h"
#include "base/words.h"
#include "daemon/init/foreign.h"
#include "data/source.h"
#include "model/config.h"
#include "model/files/config.h"

#include <limits.h>
#include <string.h>

/* --- models --------------------------------------------------------------- */

/* zerod uses the tokenizer's own special tokens. */
static void take_special_token(struct foreign *from)
{
    const char *model = draft_text(from->draft, "model.path");
    char path[PATH_MAX];
    json_auto_t *config = NULL;
    if (model)
        fs_join(path, sizeof path, model, "tokenizer_config.json");
    if (!model || !fs_exists(path) ||
        json_parse_file(path, 1 << 26, &config) != ZD_OK) {
        zd_error_clear();
        foreign_note(
                from, "correct if it is the tokenizer's own, which zerod uses");
        return;
    }
    const json_t *own = json_object_get(config, strchr(from->name, '.') + 1);
    if (json_is_object(own))
        own = json_object_get(own, "content");
    if (json_equal((json_t *)own, from->value))
        foreign_note(from, "the tokenizer's own, as here");
    else
        foreign_refuse(from, "the model's tokenizer has a different one");
}

/* PEFT's default targets depend on the model's family. */
static json_t *peft_default(const struct foreign *from)
{
    const char *path = draft_text(from->draft, "model.path");
    ZD_SCOPED(model_config_fini) struct model_config config = {0};
    json_t *targets = NULL;
    if (path && model_config_read(path, true, &config) == ZD_OK)
        for (int i = 0; i < 2 && config.family->peft_targets[i]; i++) {
            targets = targets ? targets : json_array();
            json_array_append_new(
                    targets, json_string(config.family->peft_targets[i]));
        }
    else
        zd_error_clear(); /* it need not be here */
    return targets ? targets : json_pack("[ss]", "q_proj", "v_proj");
}

static void take_peft_modules(struct foreign *from)
{
    json_t *value = from->value;
    const char *only = json_string_value(json_array_get(value, 0));
    bool is_all =
            json_array_size(value) == 1 && only && !strcmp(only, "all-linear");
    if (json_is_null(value) || (json_is_array(value) && !only))
        draft_set(
                from->draft, "lora.target_modules", peft_default(from),
                "PEFT's default for the model");
    else
        foreign_set(
                from, "lora.target_modules",
                is_all ? json_string(only) : json_deep_copy(value));
}

/* Names of torchtune's attention modules; those of the MLP follow. */
static void take_attention_modules(struct foreign *from)
{
    json_t *list = json_deep_copy(from->value);
    json_auto_t *mlp = json_pack("[sss]", "gate_proj", "up_proj", "down_proj");
    JSON_EACH(item, list) {
        const char *module = json_string_value(item);
        if (module && !strcmp(module, "output_proj"))
            json_string_set(item, "o_proj");
    }
    if (foreign_holds(from, "model.apply_lora_to_mlp"))
        json_array_extend(list, mlp);
    foreign_set(from, "lora.target_modules", list);
}

/* --- data ----------------------------------------------------------------- */

static void take_split(struct foreign *from)
{
    double share = json_number_value(from->value);
    bool is_percent = strstr(from->name, "percentage") && share >= 1;
    if (share >= 1 && !is_percent)
        foreign_refuse(from, "a number of samples; data.val_split is a share");
    else if (share > 0)
        foreign_set(
                from, "data.val_split",
                json_real(is_percent ? share / 100 : share));
}

/* `path` names files, or is a folder, or the kind of what data_files names. */
static void take_axolotl_files(struct foreign *from)
{
    json_t *value = from->value;

    const json_t *path = foreign_get(from, "path");
    const json_t *files = foreign_get(from, "data_files");
    const char *folder = json_string_value(path);
    struct text_buffer buffer = TEXT_BUFFER(PATH_MAX);
    if (value == path && files) {
        foreign_note(from, "data_files names the files");
        return;
    }
    if (folder && words_have("json text parquet", " ", folder))
        folder = NULL;
    if (value == files && folder)
        text_buffer_add(&buffer, "%s/", folder);
    bool is_list = value == files && json_array_size(files) > 1;
    if (!json_is_array(value))
        text_buffer_add(&buffer, "%s", json_string_value(value));
    if (is_list)
        text_buffer_add(&buffer, "{");
    JSON_EACH_AT(i, item, value)
        text_buffer_add(&buffer, "%s%s", i ? "," : "", json_string_value(item));
    if (is_list)
        text_buffer_add(&buffer, "}");
    if (buffer.used >= buffer.bytes)
        foreign_refuse(from, "the names are too long");
    else
        foreign_set(from, "data.train.path", json_string(buffer.out));
}

/* {ours: [theirs, ...]} */
static void take_axolotl_roles(struct foreign *from)
{
    json_t *roles = json_array();
    JSON_MEMBERS(ours, list, from->value) {
        JSON_EACH(item, list) {
            const char *theirs = json_string_value(item);
            if (theirs && strcmp(theirs, ours) != 0)
                json_array_append_new(
                        roles, json_sprintf("%s=%s", theirs, ours));
        }
    }
    foreign_set(from, "data.train.roles", roles);
}

/* Names of sets, each a source: dataset_dir is a folder that describes them. */
static void take_llamafactory_sets(struct foreign *from)
{
    struct draft *draft = from->draft;
    const char *folder = json_string_value(foreign_get(from, "dataset_dir"));
    const json_t *most = foreign_get(from, "max_samples");
    bool is_eval = !strcmp(from->name, "eval_dataset");
    json_auto_t *sets = json_is_string(from->value)
                                ? foreign_split(json_string_value(from->value))
                                : json_incref(from->value);
    draft_tell(draft, from->name);
    JSON_EACH_AT(i, set, sets) {
        json_t *source = is_eval || i > 0 ? json_object() : draft_source(draft);
        if (is_eval || i > 0)
            json_array_append_new(is_eval ? draft->eval : draft->train, source);
        if (i > 0 && !is_eval && json_is_integer(most))
            draft_set_entry(
                    source, "max_samples", json_deep_copy(most), "max_samples");
        draft_set_entry(
                source, "path", json_string(folder ? folder : "data"),
                folder ? "dataset_dir" : "dataset_dir, their default");
        draft_set_entry(source, "name", json_incref(set), from->name);
    }
}

/* In axolotl's chat templates the markers of a turn are never trained. */
static void tell_markers(struct foreign *from, const json_t *set)
{
    const char *type = json_string_at(set, "type");
    if (type && !strncmp(type, "chat_template", 13) &&
        foreign_holds(from, "train_on_inputs"))
        draft_differ(
                from->draft, "train_on_inputs",
                "of a chat_template axolotl trains what is in the turns and "
                "what ends them; train_on = \"all\" trains the markers too");
}

static void take_axolotl_datasets(struct foreign *from)
{
    struct draft *draft = from->draft;
    bool is_train = strcmp(from->name, "test_datasets") != 0;
    json_t *sources = is_train ? draft->train : draft->eval;
    char prefix[120], inner[130];
    if (!json_is_array(from->value))
        foreign_refuse(from, "must be a list");
    else if (is_train && json_array_size(sources)) {
        foreign_note(from, "overridden by --data");
        return;
    }
    JSON_EACH_AT(i, set, from->value) {
        json_t *source = json_object();
        const char *path = json_string_at(set, "path");
        struct foreign entry = *from;
        json_array_append_new(sources, source);
        ZD_PRINT(prefix, "%s[%zu].", from->name, i);
        ZD_PRINT(inner, "%ssplit", prefix);
        entry.option = "axolotl_data";
        entry.prefix = prefix;
        entry.root = set;
        entry.source = source;
        foreign_walk(&entry);
        tell_markers(from, set);
        entry.name = inner;
        entry.value = json_object_get(set, "split");
        if (json_object_get(source, "split") && path &&
            name_kind(path) != NAME_OTHER)
            foreign_refuse(&entry, "a file has no splits");
        prefix[strlen(prefix) - 1] = '\0';
        entry.name = prefix;
        entry.value = set;
        if (!json_object_get(set, "type") && strcmp(from->name, "datasets"))
            draft_set_entry(
                    source, "format", json_string("text"), "their default");
        else if (!json_object_get(set, "type"))
            foreign_refuse(&entry, "no type, which selects the prompt");
        if (!json_object_get(source, "path"))
            foreign_refuse(&entry, "no path");
    }
}

/* --- steps ---------------------------------------------------------------- */

/* Per epoch to a share of all steps. */
static void take_per_epoch(struct foreign *from)
{
    const json_t *epochs = foreign_get(from, "num_epochs");
    double count = json_number_value(from->value);
    double all = json_is_number(epochs) ? json_number_value(epochs) : 1;
    bool saves = strstr(from->name, "saves") != NULL;
    bool fits = count > 0 && count * all >= 1;
    if (fits && count != 1)
        foreign_set(
                from, saves ? "checkpoint.save_steps" : "eval.eval_steps",
                json_real(1 / (count * all)));
    else
        foreign_set(
                from, saves ? "checkpoint.save_strategy" : "eval.eval_strategy",
                json_string(fits ? "epoch" : "no"));
}

/* warmup_steps overrides warmup_ratio; 0 for both is no warm-up. */
static void take_warmup(struct foreign *from)
{
    bool is_steps = !strcmp(from->name, "warmup_steps");
    bool has_steps = foreign_holds(from, "warmup_steps");
    bool has_ratio = json_is_number(foreign_get(from, "warmup_ratio"));
    if (!foreign_holds(
                from, "lr_scheduler_type!=constant & lr_scheduler!=constant"))
        foreign_note(from, "a constant schedule has no warm-up");
    else if (!is_steps && has_steps)
        foreign_note(from, "overridden by warmup_steps");
    else if (!is_steps || has_steps || !has_ratio)
        foreign_set(from, "optim.warmup_steps", json_deep_copy(from->value));
}

/* A smallest rate as a share of the largest. */
static void take_min_lr(struct foreign *from)
{
    double rate = json_number_value(foreign_get(from, "learning_rate"));
    if (json_is_number(from->value) && rate > 0)
        foreign_set(
                from, "optim.min_lr_ratio",
                json_real(json_number_value(from->value) / rate));
}

/* --- DeepSpeed ------------------------------------------------------------ */

/* Parameters leave the device at stage 3 alone, and there with the optimizer.
 */
static void take_offload_params(struct foreign *from)
{
    const char *tier = json_string_value(from->value);
    const char *at = json_string_value(
            foreign_get(from, "zero_optimization.offload_optimizer.device"));
    if (tier && !strcmp(tier, "none")) {
        foreign_note(from, "on the device, as here");
    } else if (!tier || (strcmp(tier, "cpu") != 0 && strcmp(tier, "nvme"))) {
        foreign_refuse(from, "must be none, cpu or nvme");
    } else if (!foreign_holds(from, "zero_optimization.stage=3")) {
        foreign_note(from, "DeepSpeed offloads parameters only at stage 3");
    } else {
        foreign_set(from, "offload.params", json_string(tier));
        bool is_given = at && strcmp(at, "none") && strcmp(at, "auto");
        if (!is_given)
            draft_replace(
                    from->draft, "offload.optimizer", json_string(tier),
                    "with the parameters: zerod offloads both or the "
                    "optimizer");
        else if (!strcmp(tier, "nvme") && strcmp(at, "nvme") != 0)
            foreign_refuse(
                    from,
                    "parameters on NVMe go with optimizer states on NVMe here: "
                    "offload_optimizer.device = nvme, or offload_param.device "
                    "= cpu");
    }
}

/* Find a file relative to this folder, or to the file that names it. */
static bool find_file(
        const struct foreign *from, const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(from->path, '/');
    snprintf(out, PATH_MAX, "%s", path);
    if (fs_exists(out) || path[0] == '/' || !slash)
        return fs_exists(out);
    if ((size_t)(slash - from->path) + strlen(path) + 2 > PATH_MAX)
        return false;
    snprintf(
            out, PATH_MAX, "%.*s/%s", (int)(slash - from->path), from->path,
            path);
    return fs_exists(out);
}

/* A DeepSpeed configuration that a file names or holds. */
static void take_deepspeed(struct foreign *from)
{
    json_t *value = from->value;
    struct draft *draft = from->draft;
    const char *file = json_string_value(value);
    char path[PATH_MAX];
    json_auto_t *root = NULL;
    if (json_is_false(value))
        return;
    if (json_is_object(value)) {
        ZD_PRINT(path, "%s: %s", from->path, from->name);
        root = json_incref(value);
    } else if (!file || !find_file(from, file, path)) {
        foreign_refuse(from, "the DeepSpeed configuration cannot be found");
        return;
    } else if (foreign_read("deepspeed", path, draft, &root) != ZD_OK) {
        problem_take_record(&draft->problems, (struct toml_place){0});
        return;
    }
    bool has_steps = draft_has(draft, "train.max_steps");
    foreign_take("deepspeed", path, root, draft, true);
    if (!has_steps && draft_has(draft, "train.max_steps")) {
        draft_remove(draft, "train.max_steps");
        draft_differ(
                draft, "scheduler.params.total_num_steps",
                "there the length of the schedule alone; here the schedule is "
                "as long as the run");
    }
    foreign_note(from, "its keys are converted like those of this file");
}

/* Their stock file prints every 2000 steps. */
static void finish_deepspeed(struct foreign *from)
{
    struct draft *draft = from->draft;
    double every = draft_number(draft, "log.logging_steps");
    double steps = draft_number(draft, "train.max_steps");
    if (steps > 0 ? every > steps : every >= 2000)
        draft_replace(
                draft, "log.logging_steps", json_real(0.1),
                "steps_per_print, capped: ten times a run");
    if (steps > 0)
        draft_differ(
                draft, "scheduler.params.total_num_steps",
                "there the length of the schedule alone, while the script "
                "counts "
                "epochs; here it is the length of the run too");
    if (!foreign_get(from, "optimizer.type"))
        draft_say(
                draft, "%s names no optimizer: [optim] is zerod's.",
                from->path);
}

/* --- Hugging Face --------------------------------------------------------- */

/* TRL trains on whole conversations unless assistant_only_loss, and on
 * completions alone unless completion_only_loss is false; data.train_on is one
 * for both, so it is told by the data where they are here. */
static void finish_hf(struct foreign *from)
{
    struct draft *draft = from->draft;
    struct data_entry entry = data_entry_default();
    struct file_list list;
    const char *why = "assistant_only_loss";
    bool is_assistant = foreign_holds(from, why), all = false;
    if (foreign_holds(from, "completion_only_loss=false") && !is_assistant) {
        all = true;
        why = "completion_only_loss";
    } else if (foreign_holds(from, "@") && !is_assistant) {
        const json_t *path =
                json_object_get(json_array_get(draft->train, 0), "path");
        entry.path = json_string_at(path, "value");
        if (entry.path && sources_find(&entry, &list) == ZD_OK) {
            all = list.has_chat;
            sources_free(&list);
            if (!foreign_get(from, why))
                why = "their default for conversations";
        } else {
            zd_error_clear();
            draft_say(
                    draft,
                    "TRL trains on whole conversations: if the data are some, "
                    "set train_on = \"all\" in [data].");
        }
    }
    from->name = why;
    if (all || is_assistant || foreign_holds(from, "completion_only_loss"))
        foreign_set(
                from, "data.train_on", json_string(all ? "all" : "assistant"));
}

static void finish_llamafactory(struct foreign *from)
{
    const json_t *rank = foreign_get(from, "lora_rank");
    if (foreign_holds(from, "finetuning_type!=full & !lora_alpha"))
        draft_set(
                from->draft, "lora.lora_alpha",
                json_integer(2 * (rank ? json_integer_value(rank) : 8)),
                "their default: twice the rank");
}

static void finish(struct foreign *from)
{
    if (!strcmp(from->option, "deepspeed"))
        finish_deepspeed(from);
    else if (!strcmp(from->option, "hf"))
        finish_hf(from);
    else if (!strcmp(from->option, "llamafactory"))
        finish_llamafactory(from);
}

static foreign_fn *find_converter(const char *name)
{
    static const struct {
        const char *name;
        foreign_fn *take;
    } converters[] = {
            {"attention_modules", take_attention_modules},
            {"axolotl_datasets", take_axolotl_datasets},
            {"axolotl_files", take_axolotl_files},
            {"axolotl_roles", take_axolotl_roles},
            {"deepspeed", take_deepspeed},
            {"llamafactory_sets", take_llamafactory_sets},
            {"min_lr", take_min_lr},
            {"offload_params", take_offload_params},
            {"peft_modules", take_peft_modules},
            {"per_epoch", take_per_epoch},
            {"special_token", take_special_token},
            {"split", take_split},
            {"warmup", take_warmup}};
    size_t i = 0;
    while (strcmp(converters[i].name, name) != 0)
        i++;
    return converters[i].take;
}

void foreign_take(
        const char *option, const char *path, const json_t *root,
        struct draft *draft, bool is_part)
{
    struct foreign from = {
            .option = option,
            .path = path,
            .prefix = "",
            .root = root,
            .draft = draft,
            .is_part = is_part,
            .converter = find_converter,
            .finish = finish};
    foreign_walk(&from);
}
