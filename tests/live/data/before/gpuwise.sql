BEGIN TRANSACTION;
CREATE TABLE attempts (
	uid TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	placement TEXT NOT NULL, 
	started_at DOUBLE NOT NULL, 
	ended_at DOUBLE, 
	exit_code BIGINT, 
	outcome TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	peak_memory_bytes DOUBLE, 
	cpu_s DOUBLE, 
	PRIMARY KEY (uid, number), 
	FOREIGN KEY(uid) REFERENCES jobs (uid)
);
INSERT INTO "attempts" VALUES('2',1,'vm:1',1.79496870032726693155e+09,1.79496870034577679633e+09,4,'failed','exited with code 4',9482240.0,0.002);
INSERT INTO "attempts" VALUES('1',1,'vm:0',1.79496870032612133027e+09,1.79496870034593629839e+09,0,'succeeded','',9510912.0,0.003);
INSERT INTO "attempts" VALUES('3',1,'vm:0',1.7949687004017448425e+09,1.7949687004017448425e+09,143,'cancelled','',NULL,0.0);
INSERT INTO "attempts" VALUES('4',1,'vm:0,1,2,3',1.7949687004401929379e+09,1.79496870183367371559e+09,75,'suspended','',14393344.0,0.068);
INSERT INTO "attempts" VALUES('5',1,'vm:0',1.79496870187035369873e+09,1.79496870189283251758e+09,3,'failed','exited with code 3',9359360.0,0.004);
INSERT INTO "attempts" VALUES('5',2,'vm:0',1.79496870192812538148e+09,1.79496870195603466032e+09,NULL,'suspended','',NULL,NULL);
INSERT INTO "attempts" VALUES('4',2,'vm:0,1,2,3',1.79496870199967288976e+09,1.7949687020374546051e+09,NULL,'suspended','',NULL,NULL);
INSERT INTO "attempts" VALUES('6',1,'vm:0',1.79496870208607053756e+09,1.79496870210621213915e+09,1,'out of memory','ran out of memory; its limit was 954 MiB',9367552.0,0.005);
INSERT INTO "attempts" VALUES('6',2,'vm:0',1.7949687021778080463e+09,NULL,NULL,'','',NULL,NULL);
INSERT INTO "attempts" VALUES('7',1,'vm:1',1.79496870223640799524e+09,NULL,NULL,'','',NULL,NULL);
INSERT INTO "attempts" VALUES('8',1,'vm:2',1.79496870225546979902e+09,1.79496870307163643837e+09,75,'suspended','',14430208.0,0.078);
INSERT INTO "attempts" VALUES('9',1,'vm:3',1.79496870228991889958e+09,1.7949687039060635567e+09,NULL,'suspended','',NULL,NULL);
INSERT INTO "attempts" VALUES('8',2,'vm:2',1.79496870314079785347e+09,NULL,NULL,'','',NULL,NULL);
INSERT INTO "attempts" VALUES('10',1,'vm:3',1.79496870396194481847e+09,NULL,NULL,'','',NULL,NULL);
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	user TEXT NOT NULL, 
	action TEXT NOT NULL, 
	target TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	address TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE gpuwise_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT gpuwise_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "gpuwise_schema" VALUES('0001');
CREATE TABLE jobs (
	uid TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	array_index BIGINT NOT NULL, 
	queue TEXT NOT NULL, 
	name TEXT NOT NULL, 
	command_digest TEXT NOT NULL, 
	request TEXT NOT NULL, 
	user TEXT NOT NULL, 
	status TEXT NOT NULL, 
	why_ended TEXT NOT NULL, 
	submitted_at DOUBLE NOT NULL, 
	started_at DOUBLE, 
	ended_at DOUBLE, 
	exit_code BIGINT, 
	attempts BIGINT NOT NULL, 
	failures BIGINT NOT NULL, 
	out_of_memory BIGINT NOT NULL, 
	held TEXT NOT NULL, 
	placement TEXT NOT NULL, 
	duration_s DOUBLE NOT NULL, 
	duration_source TEXT NOT NULL, 
	gpu_memory_bytes DOUBLE NOT NULL, 
	step DOUBLE, 
	steps DOUBLE, 
	loss DOUBLE, 
	samples_per_s DOUBLE, 
	peak_memory_bytes DOUBLE, 
	gpu_s DOUBLE NOT NULL, 
	preemptions BIGINT NOT NULL, 
	idempotency_key TEXT, 
	PRIMARY KEY (uid)
);
INSERT INTO "jobs" VALUES('1',1,-1,'default','hello','3ed01ca34ba58e7440cc3fa9aa14c636','{"command":["/bin/sh","-c","echo hello"],"name":"hello","duration_s":1.0,"retries":2}','ada','succeeded','',1.79496870027976775175e+09,1.79496870027976775175e+09,1.79496870034593629839e+09,0,1,0,0,'','',1.0,'declared',0.0,NULL,NULL,NULL,NULL,9510912.0,6.67320000000000135287e-02,0,'done');
INSERT INTO "jobs" VALUES('2',2,-1,'default','','0b593c5d600231f3a0f5af5213d35a1d','{"command":["/bin/sh","-c","exit 4"],"duration_s":1.0}','ada','failed','exited with code 4',1.79496870028757071497e+09,1.79496870028757071497e+09,1.79496870035286760331e+09,4,1,1,0,'','',1.0,'declared',0.0,NULL,NULL,NULL,NULL,9482240.0,6.52970000000000078133e-02,0,'failed');
INSERT INTO "jobs" VALUES('3',3,-1,'default','','ad3776b2b76dd2ff7e413b44cf268638','{"command":["/bin/sh","-c","sleep 1000"],"duration_s":1.0}','ada','cancelled','cancelled by ada',1.79496870036257863043e+09,1.79496870036257863043e+09,1.79496870036786365515e+09,NULL,1,0,0,'','',1.0,'declared',0.0,NULL,NULL,NULL,NULL,NULL,5.28499999999999803268e-03,0,'cancelled');
INSERT INTO "jobs" VALUES('4',4,-1,'default','','a390d065373c84f75afdf1276bb5714c','{"command":["@PYTHON@","-S","@ROOT@/files/steps.py","60","@ROOT@/files/restored"],"env":{"A":"b"},"gpus":4,"duration_s":5000.0,"steps":60}','ada','suspended','',1.79496870036986970898e+09,1.79496870036986970898e+09,NULL,NULL,2,0,0,'','',5000.0,'declared',0.0,26.0,60.0,NULL,NULL,14393344.0,5.862852,2,'saves');
INSERT INTO "jobs" VALUES('5',5,-1,'default','','11fd23d54ef9757bfdab8e552b7d8d0b','{"command":["/bin/sh","@ROOT@/files/flaky.sh"],"duration_s":100.0,"retries":3}','ada','suspended','',1.79496870177314257624e+09,1.79496870177314257624e+09,NULL,NULL,2,1,0,'user','',100.0,'declared',0.0,NULL,NULL,NULL,NULL,9359360.0,1.38248999999999844234e-01,1,'flaky');
INSERT INTO "jobs" VALUES('6',6,-1,'default','','6b66fb081cbe1a2c62580468df4bfa19','{"command":["/bin/sh","@ROOT@/files/oom.sh"],"gpu_memory_bytes":1000000000.0,"duration_s":100.0}','ada','running','',1.79496870197383165358e+09,1.79496870197383165358e+09,NULL,1,2,0,1,'','vm:0',100.0,'declared',1500000000.0,NULL,NULL,NULL,NULL,9367552.0,1.35836999999999985533e-01,0,'oom');
INSERT INTO "jobs" VALUES('7',7,-1,'default','','e5fd3ce39ad11bba69e8a51347795be6','{"command":["/bin/sh","-c","[ -e again ] || { touch again; sleep 600; }; echo plain"],"duration_s":300.0}','ada','running','',1.79496870212962055207e+09,1.79496870212962055207e+09,NULL,NULL,1,0,0,'','vm:1',300.0,'declared',0.0,NULL,NULL,NULL,NULL,NULL,0.0,0,'plain');
INSERT INTO "jobs" VALUES('8',8,-1,'default','','0ecb12fa8122d6c059a655bea750efca','{"command":["@PYTHON@","-S","@ROOT@/files/steps.py","400","@ROOT@/files/restored"],"duration_s":200.0}','ada','running','',1.79496870214821553236e+09,1.79496870214821553236e+09,NULL,75,2,0,0,'','vm:2',200.0,'declared',0.0,47.0,400.0,NULL,NULL,14430208.0,8.54272999999999838038e-01,1,'sdk');
INSERT INTO "jobs" VALUES('9',9,-1,'default','','223ed7c56c6c142fbfe68bcf5fbd8909','{"command":["/bin/sh","-c","[ -e again ] || { touch again; sleep 600; }; echo unparked"],"duration_s":400.0}','ada','suspended','',1.79496870217974376681e+09,1.79496870217974376681e+09,NULL,NULL,1,0,0,'user','',400.0,'declared',0.0,NULL,NULL,NULL,NULL,NULL,1.71456699999999973016e+00,1,'parked');
INSERT INTO "jobs" VALUES('10',10,-1,'default','','a3683c8327b17cfa4be9c76e0b5a712d','{"command":["/bin/sh","-c","[ -e again ] || { touch again; sleep 600; }; echo two"],"duration_s":150.0}','ada','running','',1.79496870391766953469e+09,1.79496870391766953469e+09,NULL,NULL,1,0,0,'','vm:3',150.0,'declared',0.0,NULL,NULL,NULL,NULL,NULL,0.0,0,'two');
INSERT INTO "jobs" VALUES('11-3',11,3,'default','','4b20043ac4284dd2068e19cf1eb191d7','{"command":["/bin/sh","-c","echo task $GPUWISE_ARRAY_INDEX"],"gpus":2,"duration_s":2000.0,"array":[3]}','ada','pending','',1.79496870399781274793e+09,NULL,NULL,NULL,0,0,0,'','',2000.0,'declared',0.0,NULL,NULL,NULL,NULL,NULL,0.0,0,'array');
INSERT INTO "jobs" VALUES('11-5',11,5,'default','','4b20043ac4284dd2068e19cf1eb191d7','{"command":["/bin/sh","-c","echo task $GPUWISE_ARRAY_INDEX"],"gpus":2,"duration_s":2000.0,"array":[5]}','ada','pending','',1.79496870399781274793e+09,NULL,NULL,NULL,0,0,0,'','',2000.0,'declared',0.0,NULL,NULL,NULL,NULL,NULL,0.0,0,'array');
INSERT INTO "jobs" VALUES('12',12,-1,'default','','15edf22794f1ce22d287fa454f26d373','{"command":["/bin/sh","-c","echo dep"],"duration_s":1.0,"after":["8"]}','ada','pending','',1.79496870400109076503e+09,NULL,NULL,NULL,0,0,0,'dependency','',1.0,'declared',0.0,NULL,NULL,NULL,NULL,NULL,0.0,0,'dep');
INSERT INTO "jobs" VALUES('13',13,-1,'small','','81b69b061cf435673624c9f84c1ad421','{"command":["/bin/sh","-c","echo q1"],"queue":"small","duration_s":900.0}','ada','pending','',1.79496870400330758095e+09,NULL,NULL,NULL,0,0,0,'','',900.0,'declared',0.0,NULL,NULL,NULL,NULL,NULL,0.0,0,'queued');
INSERT INTO "jobs" VALUES('14',14,-1,'small','','ed33346e8b3437fa6a871acb5aa1f300','{"command":["/bin/sh","-c","echo q2"],"queue":"small","gpu_frac":0.5,"duration_s":950.0}','ada','pending','',1.79496870400520372392e+09,NULL,NULL,NULL,0,0,0,'quota','',950.0,'declared',0.0,NULL,NULL,NULL,NULL,NULL,0.0,0,'queued2');
CREATE TABLE journal (
	sequence INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	kind TEXT NOT NULL, 
	uid TEXT, 
	body TEXT NOT NULL, 
	PRIMARY KEY (sequence)
);
INSERT INTO "journal" VALUES(1,1.79496870027976775175e+09,'JobSubmitted','1','{"type":"JobSubmitted","at_s":0.022195,"job":0,"spec":{"id":"1","submit_s":0.022195,"duration_s":1.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":1.0,"model":"hello","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(2,1.79496870027976775175e+09,'Start','1','{"type":"Start","job":0,"placement":{"grants":[[0,1,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":0.022195}');
INSERT INTO "journal" VALUES(3,1.79496870028757071497e+09,'JobSubmitted','2','{"type":"JobSubmitted","at_s":0.029998,"job":1,"spec":{"id":"2","submit_s":0.029998,"duration_s":1.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":1.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(4,1.79496870028757071497e+09,'Start','2','{"type":"Start","job":1,"placement":{"grants":[[0,2,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":0.029998}');
INSERT INTO "journal" VALUES(5,1.79496870034649968149e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":0.088927}');
INSERT INTO "journal" VALUES(6,1.79496870032726693155e+09,'JobStarted','2','{"type":"JobStarted","at_s":0.06969428062438965,"job":1}');
INSERT INTO "journal" VALUES(7,1.79496870034649968149e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":0.088927}');
INSERT INTO "journal" VALUES(8,1.79496870032612133027e+09,'JobStarted','1','{"type":"JobStarted","at_s":0.06854867935180664,"job":0}');
INSERT INTO "journal" VALUES(9,1.79496870034649968149e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":0.088927}');
INSERT INTO "journal" VALUES(10,1.79496870034593629839e+09,'JobFinished','1','{"type":"JobFinished","at_s":0.0883636474609375,"job":0}');
INSERT INTO "journal" VALUES(11,1.79496870035286760331e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":0.095295}');
INSERT INTO "journal" VALUES(12,1.79496870034577679633e+09,'JobFailed','2','{"type":"JobFailed","at_s":0.08820414543151855,"job":1,"steps_kept":0.0,"cause":"exited with code 4","will_retry":false}');
INSERT INTO "journal" VALUES(13,1.79496870036257863043e+09,'JobSubmitted','3','{"type":"JobSubmitted","at_s":0.105006,"job":2,"spec":{"id":"3","submit_s":0.105006,"duration_s":1.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":1.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(14,1.79496870036257863043e+09,'Start','3','{"type":"Start","job":2,"placement":{"grants":[[0,1,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":0.105006}');
INSERT INTO "journal" VALUES(15,1.79496870036786365515e+09,'JobCancelled','3','{"type":"JobCancelled","at_s":0.110291,"job":2}');
INSERT INTO "journal" VALUES(16,1.79496870036786365515e+09,'Stop','3','{"type":"Stop","job":2,"at_s":0.110291}');
INSERT INTO "journal" VALUES(17,1.79496870036986970898e+09,'JobSubmitted','4','{"type":"JobSubmitted","at_s":0.112297,"job":3,"spec":{"id":"4","submit_s":0.112297,"duration_s":5000.0,"gpus":4,"min_gpus":4,"max_gpus":4,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":60.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(18,1.79496870036986970898e+09,'Start','4','{"type":"Start","job":3,"placement":{"grants":[[0,15,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":0.112297}');
INSERT INTO "journal" VALUES(19,1.79496870045782470695e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":0.200252}');
INSERT INTO "journal" VALUES(20,1.7949687004401929379e+09,'JobStarted','4','{"type":"JobStarted","at_s":0.18262028694152832,"job":3}');
INSERT INTO "journal" VALUES(21,1.7949687007613737583e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":0.503801}');
INSERT INTO "journal" VALUES(22,1.79496870076128268241e+09,'JobProgressed','4','{"type":"JobProgressed","at_s":0.50371,"job":3,"steps_done":5.0}');
INSERT INTO "journal" VALUES(23,1.79496870176959562306e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":1.512023}');
INSERT INTO "journal" VALUES(24,1.79496870176954269413e+09,'JobProgressed','4','{"type":"JobProgressed","at_s":1.51197,"job":3,"steps_done":25.0}');
INSERT INTO "journal" VALUES(25,1.79496870177314257624e+09,'JobSubmitted','5','{"type":"JobSubmitted","at_s":1.51557,"job":4,"spec":{"id":"5","submit_s":1.51557,"duration_s":100.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":100.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(26,1.79496870177314257624e+09,'Suspend','4','{"type":"Suspend","job":3,"at_s":1.51557}');
INSERT INTO "journal" VALUES(27,1.79496870177314257624e+09,'Start','5','{"type":"Start","job":4,"placement":{"grants":[[0,1,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":1.51557}');
INSERT INTO "journal" VALUES(28,1.79496870183578062052e+09,'JobSuspended','4','{"type":"JobSuspended","at_s":1.578208,"job":3,"steps_done":26.0}');
INSERT INTO "journal" VALUES(29,1.79496870188916873931e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":1.631596}');
INSERT INTO "journal" VALUES(30,1.79496870187035369873e+09,'JobStarted','5','{"type":"JobStarted","at_s":1.612781047821045,"job":4}');
INSERT INTO "journal" VALUES(31,1.79496870189714574812e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":1.639573}');
INSERT INTO "journal" VALUES(32,1.79496870189283251758e+09,'JobFailed','5','{"type":"JobFailed","at_s":1.6352598667144775,"job":4,"steps_kept":0.0,"cause":"exited with code 3","will_retry":true}');
INSERT INTO "journal" VALUES(33,1.79496870189714574812e+09,'Start','5','{"type":"Start","job":4,"placement":{"grants":[[0,1,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":1.639573}');
INSERT INTO "journal" VALUES(34,1.79496870191139173511e+09,'JobHeld','5','{"type":"JobHeld","at_s":1.653819,"job":4,"cause":"user"}');
INSERT INTO "journal" VALUES(35,1.79496870191139173511e+09,'Suspend','5','{"type":"Suspend","job":4,"at_s":1.653819}');
INSERT INTO "journal" VALUES(36,1.79496870191139173511e+09,'Resume','4','{"type":"Resume","job":3,"placement":{"grants":[[0,15,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":1.653819}');
INSERT INTO "journal" VALUES(37,1.79496870195611262326e+09,'JobSuspended','5','{"type":"JobSuspended","at_s":1.69854,"job":4,"steps_done":0.0}');
INSERT INTO "journal" VALUES(38,1.79496870197383165358e+09,'JobSubmitted','6','{"type":"JobSubmitted","at_s":1.716259,"job":5,"spec":{"id":"6","submit_s":1.716259,"duration_s":100.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":1000000000.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":100.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(39,1.79496870197383165358e+09,'Suspend','4','{"type":"Suspend","job":3,"at_s":1.716259}');
INSERT INTO "journal" VALUES(40,1.79496870197383165358e+09,'Start','6','{"type":"Start","job":5,"placement":{"grants":[[0,1,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":1.716259}');
INSERT INTO "journal" VALUES(41,1.79496870203758168219e+09,'JobSuspended','4','{"type":"JobSuspended","at_s":1.780009,"job":3,"steps_done":26.0}');
INSERT INTO "journal" VALUES(42,1.7949687021025967598e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":1.845024}');
INSERT INTO "journal" VALUES(43,1.79496870208607053756e+09,'JobStarted','6','{"type":"JobStarted","at_s":1.8284978866577148,"job":5}');
INSERT INTO "journal" VALUES(44,1.79496870210966873171e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":1.852096}');
INSERT INTO "journal" VALUES(45,1.79496870210621213915e+09,'JobFailed','6','{"type":"JobFailed","at_s":1.8486394882202148,"job":5,"steps_kept":0.0,"cause":"out of memory with 954 MiB a device; tries again with 1.4 GiB","will_retry":true}');
INSERT INTO "journal" VALUES(46,1.79496870210966873171e+09,'JobRevised','6','{"type":"JobRevised","at_s":1.852096,"job":5,"duration_s":null,"steps":null,"gpu_memory_bytes":1500000000.0,"gpu_util_frac":null}');
INSERT INTO "journal" VALUES(47,1.79496870210966873171e+09,'Start','6','{"type":"Start","job":5,"placement":{"grants":[[0,1,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":1.852096}');
INSERT INTO "journal" VALUES(48,1.79496870212962055207e+09,'JobSubmitted','7','{"type":"JobSubmitted","at_s":1.872048,"job":3,"spec":{"id":"7","submit_s":1.872048,"duration_s":300.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":300.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(49,1.79496870212962055207e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":1.872048}');
INSERT INTO "journal" VALUES(50,1.79496870212962055207e+09,'Start','7','{"type":"Start","job":3,"placement":{"grants":[[0,2,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":1.872048}');
INSERT INTO "journal" VALUES(51,1.79496870214821553236e+09,'JobSubmitted','8','{"type":"JobSubmitted","at_s":1.890643,"job":4,"spec":{"id":"8","submit_s":1.890643,"duration_s":200.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":200.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(52,1.79496870214821553236e+09,'Start','8','{"type":"Start","job":4,"placement":{"grants":[[0,4,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":1.890643}');
INSERT INTO "journal" VALUES(53,1.79496870217974376681e+09,'JobSubmitted','9','{"type":"JobSubmitted","at_s":1.922171,"job":5,"spec":{"id":"9","submit_s":1.922171,"duration_s":400.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":400.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(54,1.79496870217974376681e+09,'Start','9','{"type":"Start","job":5,"placement":{"grants":[[0,8,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":1.922171}');
INSERT INTO "journal" VALUES(55,1.79496870221568560603e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":1.958113}');
INSERT INTO "journal" VALUES(56,1.7949687021778080463e+09,'JobStarted','6','{"type":"JobStarted","at_s":1.9202353954315186,"job":2}');
INSERT INTO "journal" VALUES(57,1.79496870227331471441e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":2.015742}');
INSERT INTO "journal" VALUES(58,1.79496870223640799524e+09,'JobStarted','7','{"type":"JobStarted","at_s":1.9788353443145752,"job":3}');
INSERT INTO "journal" VALUES(59,1.79496870228093266487e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":2.02336}');
INSERT INTO "journal" VALUES(60,1.79496870225546979902e+09,'JobStarted','8','{"type":"JobStarted","at_s":1.9978971481323242,"job":4}');
INSERT INTO "journal" VALUES(61,1.79496870231147265433e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":2.0539}');
INSERT INTO "journal" VALUES(62,1.79496870228991889958e+09,'JobStarted','9','{"type":"JobStarted","at_s":2.032346248626709,"job":5}');
INSERT INTO "journal" VALUES(63,1.79496870299284768104e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":2.735275}');
INSERT INTO "journal" VALUES(64,1.79496870299280667305e+09,'JobProgressed','8','{"type":"JobProgressed","at_s":2.735234,"job":4,"steps_done":6.5}');
INSERT INTO "journal" VALUES(65,1.7949687030024886131e+09,'JobHeld','8','{"type":"JobHeld","at_s":2.744916,"job":4,"cause":"user"}');
INSERT INTO "journal" VALUES(66,1.7949687030024886131e+09,'Suspend','8','{"type":"Suspend","job":4,"at_s":2.744916}');
INSERT INTO "journal" VALUES(67,1.79496870308113455768e+09,'JobSuspended','8','{"type":"JobSuspended","at_s":2.823562,"job":4,"steps_done":7.000000000000001}');
INSERT INTO "journal" VALUES(68,1.79496870308737373352e+09,'JobReleased','8','{"type":"JobReleased","at_s":2.829801,"job":4}');
INSERT INTO "journal" VALUES(69,1.79496870308737373352e+09,'Resume','8','{"type":"Resume","job":4,"placement":{"grants":[[0,4,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":2.829801}');
INSERT INTO "journal" VALUES(70,1.79496870316253256797e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":2.90496}');
INSERT INTO "journal" VALUES(71,1.79496870314079785347e+09,'JobStarted','8','{"type":"JobStarted","at_s":2.883225202560425,"job":4}');
INSERT INTO "journal" VALUES(72,1.79496870388888955108e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":3.631317}');
INSERT INTO "journal" VALUES(73,1.79496870388885354993e+09,'JobProgressed','8','{"type":"JobProgressed","at_s":3.631281,"job":4,"steps_done":13.5}');
INSERT INTO "journal" VALUES(74,1.79496870389431071278e+09,'JobHeld','9','{"type":"JobHeld","at_s":3.636738,"job":5,"cause":"user"}');
INSERT INTO "journal" VALUES(75,1.79496870389431071278e+09,'Suspend','9','{"type":"Suspend","job":5,"at_s":3.636738}');
INSERT INTO "journal" VALUES(76,1.79496870390615773202e+09,'JobSuspended','9','{"type":"JobSuspended","at_s":3.648585,"job":5,"steps_done":1.616144751373291}');
INSERT INTO "journal" VALUES(77,1.79496870391766953469e+09,'JobSubmitted','10','{"type":"JobSubmitted","at_s":3.660097,"job":6,"spec":{"id":"10","submit_s":3.660097,"duration_s":150.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":150.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(78,1.79496870391766953469e+09,'Start','10','{"type":"Start","job":6,"placement":{"grants":[[0,8,-1]],"sharing":"EXCLUSIVE","milli":1000},"at_s":3.660097}');
INSERT INTO "journal" VALUES(79,1.79496870398581075665e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":3.728238}');
INSERT INTO "journal" VALUES(80,1.79496870396194481847e+09,'JobStarted','10','{"type":"JobStarted","at_s":3.7043721675872803,"job":6}');
INSERT INTO "journal" VALUES(81,1.79496870399781274793e+09,'JobSubmitted','11-3','{"type":"JobSubmitted","at_s":3.74024,"job":7,"spec":{"id":"11-3","submit_s":3.74024,"duration_s":2000.0,"gpus":2,"min_gpus":2,"max_gpus":2,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":2000.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(82,1.79496870399781274793e+09,'JobSubmitted','11-5','{"type":"JobSubmitted","at_s":3.74024,"job":8,"spec":{"id":"11-5","submit_s":3.74024,"duration_s":2000.0,"gpus":2,"min_gpus":2,"max_gpus":2,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":2000.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(83,1.79496870400109076503e+09,'JobSubmitted','12','{"type":"JobSubmitted","at_s":3.743518,"job":9,"spec":{"id":"12","submit_s":3.743518,"duration_s":1.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":1.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(84,1.79496870400109076503e+09,'JobHeld','12','{"type":"JobHeld","at_s":3.743518,"job":9,"cause":"dependency"}');
INSERT INTO "journal" VALUES(85,1.79496870400330758095e+09,'JobSubmitted','13','{"type":"JobSubmitted","at_s":3.745735,"job":10,"spec":{"id":"13","submit_s":3.745735,"duration_s":900.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"small","steps":900.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(86,1.79496870400520372392e+09,'JobSubmitted','14','{"type":"JobSubmitted","at_s":3.747631,"job":11,"spec":{"id":"14","submit_s":3.747631,"duration_s":950.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":0.5,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"small","steps":950.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}');
INSERT INTO "journal" VALUES(87,1.79496870400520372392e+09,'JobHeld','14','{"type":"JobHeld","at_s":3.747631,"job":11,"cause":"quota"}');
INSERT INTO "journal" VALUES(88,1.79496870489808869365e+09,'WokeUp',NULL,'{"type":"WokeUp","at_s":4.640516}');
INSERT INTO "journal" VALUES(89,1.79496870489804673199e+09,'JobProgressed','8','{"type":"JobProgressed","at_s":4.640474,"job":4,"steps_done":23.5}');
CREATE TABLE meta (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "meta" VALUES('epoch','1794968700.2575727');
INSERT INTO "meta" VALUES('secret','669c84ab68f92ff6fd5f363d2648cccf4242abae8398fe7ec8d719522d157627');
INSERT INTO "meta" VALUES('session_key','098ba3edb3e97be24af3bab48269e8097075c369b182e1e3b094191ddb8b44eb');
CREATE TABLE queues (
	name TEXT NOT NULL, 
	max_gpus DOUBLE, 
	max_jobs BIGINT, 
	weight DOUBLE NOT NULL, 
	users TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "queues" VALUES('small',1.0,NULL,2.0,'[]');
CREATE TABLE snapshots (
	sequence INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (sequence)
);
INSERT INTO "snapshots" VALUES(47,'{"gpuwise_snapshot":1,"now_s":1.852096,"nodes":[{"name":"vm","gpu_type":"cpu-core","gpus":4,"cpus":2.0,"memory_bytes":20221214720.0,"gpu_memory_bytes":5055303680.0,"speed":1.0,"usd_per_hour":"nan"}],"down":[],"lost":[],"layouts":[],"jobs":[{"spec":{"id":"4","submit_s":0.112297,"duration_s":5000.0,"gpus":4,"min_gpus":4,"max_gpus":4,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":60.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0},"course":{"status":5,"steps_done":26.0,"since_s":1.51197,"rate":0.0,"saved_steps":26.0,"placed_s":1.653819,"attained_gpu_s":5.862852,"held_gpus":0.0,"held_s":1.465713,"overhead_gpu_s":0.5310531477661136,"first_start_s":0.112297,"finish_s":"nan","placements":2,"preemptions":2,"migrations":0,"resizes":0,"held":0,"over":2},"hold":null,"key":2833.3333333333335},{"spec":{"id":"5","submit_s":1.51557,"duration_s":100.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":100.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0},"course":{"status":5,"steps_done":0.0,"since_s":1.612781047821045,"rate":0.0,"saved_steps":0.0,"placed_s":1.639573,"attained_gpu_s":0.13824899999999984,"held_gpus":0.0,"held_s":0.13824899999999984,"overhead_gpu_s":0.11145704782104482,"first_start_s":1.51557,"finish_s":"nan","placements":2,"preemptions":1,"migrations":0,"resizes":0,"held":1,"over":2},"hold":"user","key":null},{"spec":{"id":"6","submit_s":1.716259,"duration_s":100.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":1500000000.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"default","steps":100.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0},"course":{"status":2,"steps_done":0.0,"since_s":1.8284978866577148,"rate":0.0,"saved_steps":0.0,"placed_s":1.852096,"attained_gpu_s":0.13583699999999999,"held_gpus":1.0,"held_s":0.13583699999999999,"overhead_gpu_s":0.11223888665771486,"first_start_s":1.716259,"finish_s":"nan","placements":2,"preemptions":0,"migrations":0,"resizes":0,"held":0,"over":1},"hold":null,"key":null}],"placed":[["6",{"grants":[[0,1,-1]],"sharing":"EXCLUSIVE","milli":1000}]],"policy":"srtf"}');
CREATE TABLE tokens (
	id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	user TEXT NOT NULL, 
	role TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	PRIMARY KEY (id)
);
INSERT INTO "tokens" VALUES('daf32ac274dc','ece108c0061bfbf14d954d7e117a2566b30d2fd084acca2b23c298a2b57e9daf','root','admin',1.79496870027623176575e+09,NULL,NULL);
CREATE INDEX jobs_number ON jobs (number, array_index DESC, queue, name);
CREATE INDEX jobs_user ON jobs (user, number, array_index DESC, queue, name);
CREATE INDEX jobs_status ON jobs (status, number, array_index DESC, queue, name);
CREATE INDEX jobs_user_status ON jobs (user, status, number, array_index DESC, queue, name);
CREATE INDEX jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX jobs_run_times ON jobs (user, command_digest, ended_at) WHERE status = 'succeeded';
CREATE UNIQUE INDEX jobs_idempotency ON jobs (user, idempotency_key, array_index) WHERE idempotency_key IS NOT NULL;
CREATE INDEX journal_uid ON journal (uid, sequence) WHERE uid IS NOT NULL;
CREATE UNIQUE INDEX tokens_digest ON tokens (digest);
COMMIT;
