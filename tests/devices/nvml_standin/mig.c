/* NVML's MIG: what is offered and what is there, and changing it. */

#include "standin.h"

#include <stdio.h>

static const int COMPUTE_SLICES[] = {1, 2, 3, 4, 7}; /* of the kinds of compute instances, which are also their ids */
enum { COMPUTE_KINDS = sizeof COMPUTE_SLICES / sizeof *COMPUTE_SLICES };

struct attributes { uint sms, copy, decoder, encoder, jpeg, ofa, slices, compute_slices; ull mib; };
struct placement { uint start, size; };
struct profile_info_v2 {
    uint version, id, p2p, slices, most, sms, copy, decoder, encoder, jpeg, ofa;
    ull mib;
    char name[96];
};
struct instance_info { struct device *device; uint id, profile; struct placement placement; };
struct compute_profile_info { uint id, slices, most, sms, copy, decoder, encoder, jpeg, ofa; };

int nvmlDeviceGetMigMode(struct device *device, uint *now, uint *pending)
{
    ENTER(device->gpu);
    if (gpus[device->gpu].mig < 0) return NOT_SUPPORTED;
    *now = *pending = gpus[device->gpu].mig;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *device, uint *count)
{
    ENTER(device->gpu);
    *count = WHOLE;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, uint index, struct device **slice)
{
    ENTER(device->gpu);
    uint seen = 0;
    for (int i = 0; i < MOST; i++)
        if (computes[i].alive && computes[i].instance->gpu == device->gpu && seen++ == index) {
            *slice = &computes[i].device;
            return OK;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetGpuInstanceId(struct device *slice, uint *id)
{
    ENTER(slice->gpu);
    *id = slice->slice->instance->id;
    return OK;
}

int nvmlDeviceGetAttributes_v2(struct device *slice, struct attributes *attributes)
{
    ENTER(slice->gpu);
    struct profile *profile = &slice->slice->instance->profile;
    *attributes = (struct attributes){0};
    attributes->slices = profile->slices;
    attributes->compute_slices = slice->slice->slices;
    attributes->mib = profile->mib;
    return OK;
}

int nvmlDeviceGetGpuInstanceProfileInfoV(struct device *device, uint kind, struct profile_info_v2 *info)
{
    ENTER(device->gpu);
    if (kind >= KINDS) return INVALID_ARGUMENT;
    if (info->version != (sizeof *info | 2 << 24)) return VERSION_MISMATCH;
    for (int i = 0; i < profile_count; i++) {
        struct profile *p = &profiles[i];
        if (p->gpu != device->gpu || p->kind != (int)kind) continue;
        *info = (struct profile_info_v2){.version = info->version, .id = p->id, .slices = p->slices, .most = p->most,
                                         .mib = p->mib};
        snprintf(info->name, sizeof info->name, "MIG %.80s", p->name);
        return OK;
    }
    return NOT_SUPPORTED;
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(struct device *device, uint id, struct placement *placements,
                                                  uint *count)
{
    ENTER(device->gpu);
    struct profile *profile = profile_of(device->gpu, id);
    if (!profile) return NOT_SUPPORTED;
    uint found = 0;
    for (uint start = 0; start < 32; start++)
        if (profile->starts >> start & 1) {
            if (placements && found < *count) placements[found] = (struct placement){start, profile->size};
            found++;
        }
    int fits = !placements || found <= *count;
    *count = found;
    return fits ? OK : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetGpuInstances(struct device *device, uint id, struct instance **found, uint *count)
{
    ENTER(device->gpu);
    if (!profile_of(device->gpu, id)) return NOT_SUPPORTED;
    *count = 0;
    for (int i = 0; i < MOST; i++)
        if (instances[i].alive && instances[i].gpu == device->gpu && instances[i].profile.id == (int)id)
            found[(*count)++] = &instances[i];
    return OK;
}

int nvmlDeviceGetGpuInstanceById(struct device *device, uint id, struct instance **found)
{
    ENTER(device->gpu);
    if (id < 1 || id > MOST || !instances[id - 1].alive) return NOT_FOUND;
    *found = &instances[id - 1];
    return OK;
}

int nvmlGpuInstanceGetInfo(struct instance *in, struct instance_info *info)
{
    ENTER(in->gpu);
    *info = (struct instance_info){&whole[in->gpu], in->id, in->profile.id, {in->start, in->profile.size}};
    return OK;
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(struct instance *in, uint kind, uint engine,
                                                 struct compute_profile_info *info)
{
    ENTER(in->gpu);
    if (engine != 0) return INVALID_ARGUMENT;
    if (kind >= COMPUTE_KINDS || COMPUTE_SLICES[kind] > in->profile.slices) return NOT_SUPPORTED;
    int slices = COMPUTE_SLICES[kind];
    *info = (struct compute_profile_info){.id = kind, .slices = slices, .most = in->profile.slices / slices};
    return OK;
}

int nvmlGpuInstanceGetComputeInstances(struct instance *in, uint id, struct compute **found, uint *count)
{
    ENTER(in->gpu);
    *count = 0;
    for (int i = 0; i < MOST; i++)
        if (computes[i].alive && computes[i].instance == in && computes[i].slices == COMPUTE_SLICES[id])
            found[(*count)++] = &computes[i];
    return OK;
}

/* -- MIG: changing it ---------------------------------------------------------------------------------------------- */

static uint units(int start, int size)
{
    return ((1u << size) - 1) << start;
}

int nvmlDeviceCreateGpuInstanceWithPlacement(struct device *device, uint id, const struct placement *at,
                                             struct instance **created)
{
    ENTER(device->gpu);
    struct profile *profile = profile_of(device->gpu, id);
    if (!profile || !(profile->starts >> at->start & 1) || at->size != (uint)profile->size) return INVALID_ARGUMENT;
    for (int i = 0; i < MOST; i++) {
        struct instance *in = &instances[i];
        if (in->alive && in->gpu == device->gpu && units(in->start, in->profile.size) & units(at->start, at->size))
            return INSUFFICIENT_RESOURCES;
    }
    *created = new_instance(device->gpu, profile, at->start);
    note("create %d %s %d\n", device->gpu, profile->name, at->start);
    return OK;
}

int nvmlGpuInstanceCreateComputeInstance(struct instance *in, uint id, struct compute **created)
{
    ENTER(in->gpu);
    *created = new_compute(in, COMPUTE_SLICES[id]);
    note("compute %d %s %d: %d\n", in->gpu, in->profile.name, in->start, COMPUTE_SLICES[id]);
    return OK;
}

int nvmlComputeInstanceDestroy(struct compute *compute)
{
    ENTER(compute->instance->gpu);
    for (int i = 0; i < process_count; i++)
        if (processes[i].gpu == compute->instance->gpu && processes[i].instance == compute->instance->id) return IN_USE;
    compute->alive = 0;
    return OK;
}

int nvmlGpuInstanceDestroy(struct instance *in)
{
    ENTER(in->gpu);
    for (int i = 0; i < MOST; i++)
        if (computes[i].alive && computes[i].instance == in) return IN_USE;
    in->alive = 0;
    note("destroy %d %s %d\n", in->gpu, in->profile.name, in->start);
    return OK;
}
