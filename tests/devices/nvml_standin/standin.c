/* A stand-in for libnvidia-ml.so.1: the part of NVML that gpuwise calls, for the machine described in the file that
 * NVML_STANDIN names. The file is read at every call, so that a test can change the machine while it is watched; MIG
 * instances live here, and are set up anew when SETUP has grown. What is created and destroyed is written to that file's
 * name + ".log".
 *
 *   setup SETUP                                     the first line
 *   gpu NAME|UUID|BUS_ID|TOTAL|USED|UTIL|MILLIWATT|CELSIUS|MHZ|CORES|MIG|LOST_AFTER|BACK_AT_INIT
 *   process GPU PID BYTES INSTANCE MPS              BYTES -1: not available; INSTANCE -1: of the whole GPU
 *   profile GPU KIND ID SLICES SIZE MOST MIB STARTS NAME      STARTS: a bit mask of placement units
 *   instance GPU PROFILE_ID START COMPUTE           COMPUTE: how many compute instances it holds
 *   fail FUNCTION GPU CODE AFTER TIMES              GPU -1: any; the first AFTER calls succeed; TIMES 0: for ever
 *
 * Structures and symbols are those of nvml.h that pynvml resolves. */

#include "standin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu gpus[MOST_GPUS];
struct process processes[MOST];
struct profile profiles[MOST];
struct device whole[MOST_GPUS];
struct instance instances[MOST];
struct compute computes[MOST];
int gpu_count, process_count, profile_count;

struct rule { char function[96]; int gpu, code, after, times; };
struct counted { char function[96]; int gpu, calls; };
static struct rule rules[MOST];
static struct counted counts[4 * MOST];
static int rule_count, setup, session, inits, made, gpu_calls[MOST_GPUS];

struct profile *profile_of(int gpu, int id)
{
    for (int i = 0; i < profile_count; i++)
        if (profiles[i].gpu == gpu && profiles[i].id == id) return &profiles[i];
    return NULL;
}

struct compute *new_compute(struct instance *in, int slices)
{
    for (int i = 0; i < MOST; i++)
        if (!computes[i].alive) {
            computes[i] = (struct compute){1, ++made, slices, in, {in->gpu, &computes[i]}};
            return &computes[i];
        }
    abort();
}

struct instance *new_instance(int gpu, struct profile *profile, int start)
{
    for (int i = 0; i < MOST; i++)
        if (!instances[i].alive) {
            instances[i] = (struct instance){1, gpu, i + 1, start, *profile};
            return &instances[i];
        }
    abort();
}

static void drop_instances(int gpu) /* -1: of all */
{
    for (int i = 0; i < MOST; i++) {
        if (computes[i].alive && (gpu < 0 || computes[i].instance->gpu == gpu)) computes[i].alive = 0;
        if (gpu < 0 || instances[i].gpu == gpu) instances[i].alive = 0;
    }
}

static void parse(const char *line, int *setting_up)
{
    struct gpu g;
    struct process p;
    struct profile f;
    struct rule r;
    int gpu, id, start, compute, number;
    if (sscanf(line, "gpu %95[^|]|%95[^|]|%31[^|]|%lld|%lld|%d|%d|%d|%d|%llx|%d|%d|%d", g.name, g.uuid, g.bus_id,
               &g.total, &g.used, &g.util, &g.milliwatt, &g.celsius, &g.mhz, &g.cores, &g.mig, &g.lost_after,
               &g.back_at_init) == 13)
        gpus[gpu_count++] = g;
    else if (sscanf(line, "process %d %d %lld %d %d", &p.gpu, &p.pid, &p.bytes, &p.instance, &p.mps) == 5)
        processes[process_count++] = p;
    else if (sscanf(line, "profile %d %d %d %d %d %d %d %d %95[^\n]", &f.gpu, &f.kind, &f.id, &f.slices, &f.size,
                    &f.most, &f.mib, &f.starts, f.name) == 9)
        profiles[profile_count++] = f;
    else if (sscanf(line, "fail %95s %d %d %d %d", r.function, &r.gpu, &r.code, &r.after, &r.times) == 5)
        rules[rule_count++] = r;
    else if (sscanf(line, "setup %d", &number) == 1) {
        *setting_up = number > setup;
        setup = number;
        if (*setting_up) drop_instances(-1);
    }
    else if (sscanf(line, "instance %d %d %d %d", &gpu, &id, &start, &compute) == 4) {
        if (!*setting_up) return;
        struct instance *in = new_instance(gpu, profile_of(gpu, id), start);
        for (int i = 0; i < compute; i++) new_compute(in, in->profile.slices / compute);
    } else {
        fprintf(stderr, "NVML stand-in: cannot read %s", line);
        abort();
    }
}

void load(void)
{
    int setting_up = 0;
    char line[512];
    const char *path = getenv("NVML_STANDIN");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) {
        fprintf(stderr, "NVML stand-in: NVML_STANDIN must name a file that describes a machine\n");
        abort();
    }
    gpu_count = process_count = profile_count = rule_count = 0;
    while (fgets(line, sizeof line, file)) parse(line, &setting_up);
    fclose(file);
    for (int i = 0; i < gpu_count; i++) whole[i] = (struct device){i, NULL};
}

void note(const char *format, ...)
{
    char path[512];
    va_list args;
    snprintf(path, sizeof path, "%s.log", getenv("NVML_STANDIN"));
    FILE *file = fopen(path, "a");
    va_start(args, format);
    vfprintf(file, format, args);
    va_end(args);
    fclose(file);
}

/* -- every call begins here: is the library up, is the GPU there, was it told to fail? ---------------------------- */

static int told_to_fail(const char *function, int gpu)
{
    int calls = 0;
    for (int i = 0; i < 4 * MOST; i++) {
        if (!counts[i].calls) {
            counts[i].gpu = gpu;
            strcpy(counts[i].function, function);
        }
        if (counts[i].gpu == gpu && !strcmp(counts[i].function, function)) {
            calls = ++counts[i].calls;
            break;
        }
    }
    for (int i = 0; i < rule_count; i++) {
        struct rule *r = &rules[i];
        int meant = !strcmp(r->function, function) && (r->gpu < 0 || r->gpu == gpu);
        if (meant && calls > r->after && (!r->times || calls <= r->after + r->times)) return r->code;
    }
    return OK;
}

/* One that comes back has been reset, and has no MIG instances. */
static int is_lost(int gpu)
{
    struct gpu *g = &gpus[gpu];
    int back = g->back_at_init && inits >= g->back_at_init;
    if (g->lost_after < 0 || back || ++gpu_calls[gpu] <= g->lost_after) return 0;
    drop_instances(gpu);
    return 1;
}

int enter(const char *function, int gpu)
{
    load();
    if (!session) return UNINITIALIZED;
    return gpu >= 0 && is_lost(gpu) ? GPU_IS_LOST : told_to_fail(function, gpu);
}

int start_session(void)
{
    load();
    int code = told_to_fail("nvmlInitWithFlags", -1);
    if (code) return code;
    inits++;
    session++;
    return OK;
}

int end_session(void)
{
    int code = enter("nvmlShutdown", -1);
    if (!code) session--;
    return code;
}
