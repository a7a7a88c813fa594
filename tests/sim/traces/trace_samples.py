"""A few rows of each format, made up for the tests."""

from __future__ import annotations

from gpuwise.sim.traces.trace import Trace

TIRESIAS = (
    "job_id,num_gpu,submit_time,iterations,model_name,duration,interval",
    "7,2,40,900,vgg16,300,10",
    "8,1,30,500,resnet50,100,10",
)
MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,"
    "resource_time_1,resource_time_2,priority",
    "0,4,1500,1000,bert,8,250500,0,250,1,200,20,1",
)
CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,"
    "best_effort,job_type",
    "0,vc_a,2,100,50,vgg16,200,8,300,10,0,strict",
    "1,vc_b,1,110,50,vgg16,200,8,400-500,10-5,0,soft",
    "2,vc_b,1,120,50,vgg16,200,8,,,1,best",
    "3,vc_b,0,130,50,vgg16,200,8,300,10,0,strict",
)
PHILLY_CSV = (
    "timestamp,duration,num_gpus,gpu_time,cluster",
    "2017-10-09 07:01:00,66.0,1,66.0,aa",
    "2017-10-09 07:00:00,2951.0,8,23608.0,bb",
    "",
)
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
    "p0,12000,16384,1,460,V100M16|V100M32,LS,Succeeded,100,700,200",
    "p1,4000,1024,0,0,,BE,Pending,300,340,",
    "p2,4000,1024,8,1000,,Burstable,Failed,400,460,410",
    "p3,4000,1024,1,1000,,Guaranteed,Running,500,500,500",
)
SACCT = (
    "JobID|User|Account|Submit|Start|End|ElapsedRaw|State|ReqTRES|AllocTRES|Timelimit|Priority",
    "100|ann|vision|2024-03-01T10:00:00|2024-03-01T10:05:00|2024-03-01T11:05:00|3600|COMPLETED|"
    "billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=32G,node=1|billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=32G,node=1"
    "|1-00:00:00|4021",
    "100.batch|||2024-03-01T10:00:00|2024-03-01T10:05:00|2024-03-01T11:05:00|3600|COMPLETED||cpu=8,mem=32G,node=1||",
    "101_4|bob|speech|2024-03-01T10:01:00|2024-03-01T10:02:00|2024-03-01T10:12:00|600|CANCELLED by 1001|"
    "cpu=2,gres/gpu=1,mem=4000M|cpu=2,gres/gpu=1,mem=4000M|02:00:00|10",
    "101_[5-9]|bob|speech|2024-03-01T10:01:00|Unknown|Unknown|0|PENDING|cpu=2,gres/gpu=1,mem=4000M||02:00:00|10",
    "102|bob|speech|2024-03-01T10:02:00|None|2024-03-01T10:03:00|0|CANCELLED by 0|cpu=2,gres/gpu=1||02:00:00|10",
    "103|cat||2024-03-01T10:03:00|2024-03-01T10:03:00|2024-03-01T10:04:40|100|OUT_OF_MEMORY|cpu=1,mem=1T|cpu=1,mem=1T||",
)
GAVEL_12 = (
    "ResNet-50 (batch size 64)\tpython3 main.py\timage\t--steps\t1\t1000\t2\tgns\t1\t-1.000000\t500\t0",
    "A3C\tpython3 main.py\trl\t--steps\t1\t70\t1\tstatic\t5\t2.0\t100\t30",
)
PHILLY_JSON = [
    {
        "status": "Pass",
        "vc": "aa",
        "jobid": "application_2",
        "attempts": [
            {"start_time": "2017-10-09 08:00:00", "end_time": "2017-10-09 08:10:00", "detail": []},
            {
                "start_time": "2017-10-09 09:00:00",
                "end_time": "2017-10-09 09:30:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu5"]}],
            },
        ],
        "submitted_time": "2017-10-09 07:59:00",
        "user": "u1",
    },
    {
        "status": "Killed",
        "vc": "bb",
        "jobid": "application_1",
        "attempts": [
            {
                "start_time": "2017-10-09 07:50:00",
                "end_time": "2017-10-09 07:50:20",
                "detail": [{"ip": "m1", "gpus": ["gpu0"]}],
            },
            {"start_time": "2017-10-09 08:50:00", "end_time": None, "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
        ],
        "submitted_time": "2017-10-09 07:49:00",
        "user": "u2",
    },
    {"status": "Failed", "vc": "bb", "jobid": "a3", "attempts": [], "submitted_time": "2017-10-09 07:49:00"},
    {"status": "Failed", "vc": "bb", "jobid": "a4", "attempts": [], "submitted_time": "None"},
]


def column(trace: Trace, name: str) -> list[object]:
    return trace.jobs[name].to_list()
