/* The machine that the stand-in for NVML describes, and what every call to it begins with. */

#ifndef STANDIN_H
#define STANDIN_H

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    GPU_IS_LOST = 15, IN_USE = 19, INSUFFICIENT_RESOURCES = 23, VERSION_MISMATCH = 25
};
enum { MOST_GPUS = 8, MOST = 64, KINDS = 18, WHOLE = 7 };

typedef unsigned int uint;
typedef unsigned long long ull;

struct gpu {
    char name[96], uuid[96], bus_id[32];
    long long total, used;
    int util, milliwatt, celsius, mhz, mig, lost_after, back_at_init;
    ull cores;
};
struct process { int gpu, pid, instance, mps; long long bytes; };
struct profile { int gpu, kind, id, slices, size, most, mib, starts; char name[96]; };
struct device { int gpu; struct compute *slice; }; /* a GPU, or a slice of it */
struct instance { int alive, gpu, id, start; struct profile profile; };
struct compute { int alive, number, slices; struct instance *instance; struct device device; };

extern struct gpu gpus[MOST_GPUS];
extern struct process processes[MOST];
extern struct profile profiles[MOST];
extern struct device whole[MOST_GPUS]; /* the GPUs themselves */
extern struct instance instances[MOST];
extern struct compute computes[MOST];
extern int gpu_count, process_count, profile_count;

struct profile *profile_of(int gpu, int id);
struct instance *new_instance(int gpu, struct profile *profile, int start);
struct compute *new_compute(struct instance *in, int slices);

void load(void);                          /* reads the description */
void note(const char *format, ...);       /* for the test to read */
int start_session(void);
int end_session(void);
int enter(const char *function, int gpu); /* the code with which this call shall fail, or OK */

#define ENTER(gpu)                                  \
    do {                                            \
        int code_ = enter(__func__, (gpu));         \
        if (code_) return code_;                    \
    } while (0)

#endif
