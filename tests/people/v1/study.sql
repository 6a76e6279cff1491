-- A database that version 1 of the tables wrote, with votes in it. Never edited.
BEGIN TRANSACTION;
CREATE TABLE assignment (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	study_id INTEGER NOT NULL, 
	item_id INTEGER NOT NULL, 
	rater_id INTEGER NOT NULL, 
	repeat INTEGER NOT NULL, 
	chosen_by TEXT NOT NULL, 
	state TEXT NOT NULL, 
	extra INTEGER NOT NULL, 
	counted INTEGER NOT NULL, 
	version_id INTEGER NOT NULL, 
	"order" TEXT NOT NULL, 
	lease_ends BIGINT NOT NULL, 
	created BIGINT NOT NULL, 
	closed BIGINT, 
	UNIQUE (item_id, rater_id, repeat), 
	CONSTRAINT known_state CHECK (state IN ('leased', 'done', 'skipped', 'expired', 'released')), 
	FOREIGN KEY(study_id) REFERENCES study (id), 
	FOREIGN KEY(item_id) REFERENCES item (id), 
	FOREIGN KEY(rater_id) REFERENCES rater (id), 
	FOREIGN KEY(version_id) REFERENCES study_version (id)
);
INSERT INTO "assignment" VALUES(1,1,1,1,0,'random','done',0,1,2,'[0, 1]',1700000900012,1700000000011,1700000000013);
INSERT INTO "assignment" VALUES(2,1,1,2,0,'finish','done',0,1,2,'[1, 0]',1700000900017,1700000000016,1700000000018);
INSERT INTO "assignment" VALUES(3,1,4,3,0,'random','done',0,1,2,'[0, 1]',1700000900022,1700000000021,1700000000023);
INSERT INTO "assignment" VALUES(4,1,4,1,0,'finish','done',0,1,2,'[1, 0]',1700000900027,1700000000026,1700000000028);
INSERT INTO "assignment" VALUES(5,1,2,2,0,'random','done',0,1,2,'[1, 0]',1700000900032,1700000000031,1700000000033);
INSERT INTO "assignment" VALUES(6,1,2,3,0,'finish','done',0,1,2,'[0, 1]',1700000900037,1700000000036,1700000000038);
INSERT INTO "assignment" VALUES(7,1,3,1,0,'random','done',0,1,2,'[0, 1]',1700000900042,1700000000041,1700000000066);
INSERT INTO "assignment" VALUES(8,1,3,2,0,'finish','skipped',0,1,2,'[0, 1]',1700000900047,1700000000046,1700000000048);
INSERT INTO "assignment" VALUES(9,1,3,3,0,'finish','done',0,1,2,'[0, 1]',1700000900052,1700000000051,1700000000053);
INSERT INTO "assignment" VALUES(10,2,6,4,0,'random','done',0,1,3,'[3, 2, 0, 1]',1700000900074,1700000000073,1700000000075);
INSERT INTO "assignment" VALUES(11,2,6,5,0,'finish','done',0,1,3,'[3, 0, 2, 1]',1700000900080,1700000000079,1700000000081);
CREATE TABLE event (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	study_id INTEGER, 
	at BIGINT NOT NULL, 
	actor TEXT NOT NULL, 
	action TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	FOREIGN KEY(study_id) REFERENCES study (id)
);
INSERT INTO "event" VALUES(1,1,1700000000001,'owner','study_created','tutoring','{"gold_rate": 0.0, "kind": "pair", "lease_seconds": 900, "overlap": 2, "policy": "finish_first", "repeat_rate": 0.0, "training_pass": 0.8}');
INSERT INTO "event" VALUES(2,1,1700000000002,'owner','items_added','tutoring','{"items": 4, "known": 0, "prompts": 4, "responses": 8}');
INSERT INTO "event" VALUES(3,1,1700000000003,'owner','items_added','tutoring','{"items": 1, "known": 0, "prompts": 1, "responses": 2}');
INSERT INTO "event" VALUES(4,1,1700000000004,'owner','rater_added','rater 0','{"kind": "human", "role": "rater"}');
INSERT INTO "event" VALUES(5,1,1700000000005,'owner','rater_added','rater 1','{"kind": "human", "role": "rater"}');
INSERT INTO "event" VALUES(6,1,1700000000006,'owner','rater_added','rater 2','{"kind": "human", "role": "rater"}');
INSERT INTO "event" VALUES(7,1,1700000000008,'owner','study_version','tutoring','{"sha256": "53746c9e24fa175edc277819ba66d69c0e08e2a9e30ba446ad3c4c7ca939eec8", "version": 2}');
INSERT INTO "event" VALUES(8,1,1700000000066,'rater 0','flagged','item 3','{"flags": ["broken"], "judgement": 10}');
INSERT INTO "event" VALUES(9,1,1700000000067,'owner','exclude','c3','{"reason": "broken", "scope": "item"}');
INSERT INTO "event" VALUES(10,2,1700000000068,'owner','study_created','ranks','{"gold_rate": 0.0, "kind": "ranking", "lease_seconds": 900, "overlap": 2, "policy": "finish_first", "repeat_rate": 0.0, "training_pass": 0.8}');
INSERT INTO "event" VALUES(11,2,1700000000069,'owner','items_added','ranks','{"items": 1, "known": 0, "prompts": 1, "responses": 4}');
INSERT INTO "event" VALUES(12,2,1700000000070,'owner','rater_added','anna','{"kind": "human", "role": "rater"}');
INSERT INTO "event" VALUES(13,2,1700000000076,'owner','rater_added','berta','{"kind": "human", "role": "rater"}');
INSERT INTO "event" VALUES(14,1,1700000000082,'owner','rater_added','late','{"kind": "human", "role": "rater"}');
INSERT INTO "event" VALUES(15,2,1700000000088,'owner','exported','export 1','{}');
CREATE TABLE export (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	study_id INTEGER NOT NULL, 
	last_judgement BIGINT NOT NULL, 
	last_event BIGINT NOT NULL, 
	settings TEXT NOT NULL, 
	manifest TEXT NOT NULL, 
	created BIGINT NOT NULL, 
	FOREIGN KEY(study_id) REFERENCES study (id)
);
INSERT INTO "export" VALUES(1,2,12,13,'{"kinds": ["human", "simulated"], "versions": null, "ties": "drop", "min_votes": 1, "use_strength": true, "weights": false, "margins": false}','{"format": "tutelage-export/1", "tutelage": "0.1.0", "created": "2023-11-14T22:13:20Z", "study": {"name": "ranks", "kind": "ranking", "plan": {"overlap": 2, "policy": "finish_first", "gold_rate": 0.0, "repeat_rate": 0.0, "training_pass": 0.8, "lease_seconds": 900}, "created": 1700000000068}, "versions": [{"question": "Which response is better?", "scale": 3, "criteria": [], "guidelines": ""}], "snapshot": {"last_judgement": 12, "last_event": 13}, "selection": {"kinds": ["human", "simulated"], "versions": null, "ties": "drop", "min_votes": 1, "use_strength": true, "weights": false, "margins": false}, "judgements": {"total": 2, "used": 2, "outvoted": 0, "tied": 0, "both_bad": 0, "too_few": 0, "identical": 0, "adjudication": 0, "gold": 0, "training": 0, "repeat": 0, "skipped": 0, "excluded": 0, "other_kind": 0, "other_version": 0, "superseded": 0}, "rows": {"preferences": 5, "by_split": {"train": 5}, "unpaired": 0}, "reliability": {"anna": 0.5909090909090909, "berta": 0.5909090909090909}, "strength_agreement": [], "excluded": {"rater": {}, "item": {}, "judgement": {}}, "notes": [], "files": {"preferences.jsonl": {"rows": 5, "sha256": "88b52834c75a61b4896f2754875bd6149103bdafe55eb645503325bd0ac0c291"}, "unpaired.jsonl": {"rows": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}, "votes.jsonl": {"rows": 2, "sha256": "a5191710f6ca676e55afbd374544eb9fb591e3106929ff8430c19a8cb4045e49"}, "items.jsonl": {"rows": 1, "sha256": "6acf7eab845a2a0fbce86feb027ba584f8ac17fb7cc4b64513efb262905a6889"}, "raters.jsonl": {"rows": 2, "sha256": "4133e451f77671fe8e3e59df7d07ae17791eb4868ed440b549a46200423f693b"}, "votes.csv": {"rows": 2, "sha256": "678f5ddd4915d6a457ed3a298b120d63c944e5ff18e281c3da96f56cb776daf2"}}}',1700000000088);
CREATE TABLE invite (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	study_id INTEGER NOT NULL, 
	role TEXT NOT NULL, 
	token_sha256 TEXT NOT NULL, 
	note TEXT NOT NULL, 
	max_uses INTEGER NOT NULL, 
	uses INTEGER DEFAULT '0' NOT NULL, 
	expires BIGINT NOT NULL, 
	revoked BIGINT, 
	created BIGINT NOT NULL, 
	FOREIGN KEY(study_id) REFERENCES study (id), 
	UNIQUE (token_sha256)
);
CREATE TABLE item (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	study_id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	prompt_id INTEGER NOT NULL, 
	lengths TEXT NOT NULL, 
	samplers TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	round INTEGER NOT NULL, 
	pool TEXT NOT NULL, 
	gold TEXT, 
	explanation TEXT, 
	overlap INTEGER, 
	second INTEGER NOT NULL, 
	target INTEGER NOT NULL, 
	priority FLOAT NOT NULL, 
	shuffle BIGINT NOT NULL, 
	excluded TEXT, 
	created BIGINT NOT NULL, 
	answered INTEGER DEFAULT '0' NOT NULL, 
	leased INTEGER DEFAULT '0' NOT NULL, 
	skipped INTEGER DEFAULT '0' NOT NULL, 
	a_votes INTEGER DEFAULT '0' NOT NULL, 
	b_votes INTEGER DEFAULT '0' NOT NULL, 
	ties INTEGER DEFAULT '0' NOT NULL, 
	both_bad INTEGER DEFAULT '0' NOT NULL, 
	room INTEGER NOT NULL, 
	started INTEGER DEFAULT '0' NOT NULL, 
	touched BIGINT NOT NULL, 
	UNIQUE (study_id, "key"), 
	CONSTRAINT known_pool CHECK (pool IN ('production', 'gold', 'training')), 
	FOREIGN KEY(study_id) REFERENCES study (id), 
	FOREIGN KEY(prompt_id) REFERENCES prompt (id)
);
INSERT INTO "item" VALUES(1,1,'c0',1,'[17, 6]','["old-model", "new-model"]','random',1,'production',NULL,'',NULL,1,2,0.0,7139500441682528,NULL,1700000000002,2,0,0,0,2,0,0,0,1,1700000000018);
INSERT INTO "item" VALUES(2,1,'c1',2,'[17, 6]','["old-model", "new-model"]','random',1,'production',NULL,'',NULL,0,2,0.0,30536141254284757,NULL,1700000000002,2,0,0,0,0,2,0,0,1,1700000000038);
INSERT INTO "item" VALUES(3,1,'c2',3,'[17, 6]','["old-model", "new-model"]','random',1,'production',NULL,'',NULL,0,2,0.0,68730623614635908,NULL,1700000000002,2,0,1,0,1,0,1,0,1,1700000000066);
INSERT INTO "item" VALUES(4,1,'c3',4,'[17, 6]','["old-model", "new-model"]','random',1,'production',NULL,'',NULL,0,2,0.0,18481525970999094,'broken',1700000000002,2,0,0,0,2,0,0,0,1,1700000000071);
INSERT INTO "item" VALUES(5,1,'c100',5,'[19, 8]','["old-model", "new-model"]','random',1,'gold','b','',NULL,0,1000000000,0.0,47497724820765608,NULL,1700000000003,0,0,0,0,0,0,0,1000000000,0,1700000000003);
INSERT INTO "item" VALUES(6,2,'i',6,'[4, 8, 12, 5]','["m", "m", "m", "m"]','random',1,'production',NULL,'',2,1,2,0.0,43138981669946059,NULL,1700000000069,2,0,0,0,0,0,0,0,1,1700000000081);
CREATE TABLE item_response (
	item_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	response_id INTEGER NOT NULL, 
	PRIMARY KEY (item_id, position), 
	FOREIGN KEY(item_id) REFERENCES item (id), 
	FOREIGN KEY(response_id) REFERENCES response (id)
);
INSERT INTO "item_response" VALUES(1,0,1);
INSERT INTO "item_response" VALUES(1,1,5);
INSERT INTO "item_response" VALUES(2,0,2);
INSERT INTO "item_response" VALUES(2,1,6);
INSERT INTO "item_response" VALUES(3,0,3);
INSERT INTO "item_response" VALUES(3,1,7);
INSERT INTO "item_response" VALUES(4,0,4);
INSERT INTO "item_response" VALUES(4,1,8);
INSERT INTO "item_response" VALUES(5,0,9);
INSERT INTO "item_response" VALUES(5,1,10);
INSERT INTO "item_response" VALUES(6,0,11);
INSERT INTO "item_response" VALUES(6,1,12);
INSERT INTO "item_response" VALUES(6,2,13);
INSERT INTO "item_response" VALUES(6,3,14);
CREATE TABLE judgement (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	study_id INTEGER NOT NULL, 
	assignment_id INTEGER NOT NULL, 
	item_id INTEGER NOT NULL, 
	rater_id INTEGER NOT NULL, 
	version_id INTEGER NOT NULL, 
	revision INTEGER NOT NULL, 
	latest INTEGER NOT NULL, 
	displayed TEXT NOT NULL, 
	"order" TEXT NOT NULL, 
	verdict TEXT NOT NULL, 
	strength INTEGER NOT NULL, 
	ranking TEXT, 
	criteria TEXT NOT NULL, 
	flags TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	repeat INTEGER NOT NULL, 
	extra INTEGER NOT NULL, 
	active_ms BIGINT, 
	wall_ms BIGINT, 
	changes INTEGER NOT NULL, 
	client TEXT NOT NULL, 
	idempotency_key TEXT NOT NULL, 
	excluded TEXT, 
	created BIGINT NOT NULL, 
	UNIQUE (assignment_id, revision), 
	UNIQUE (study_id, idempotency_key), 
	CONSTRAINT known_verdict CHECK (verdict IN ('a', 'b', 'tie', 'both_bad', 'skip', 'ranked')), 
	CONSTRAINT known_strength CHECK (strength BETWEEN 0 AND 3), 
	FOREIGN KEY(study_id) REFERENCES study (id), 
	FOREIGN KEY(assignment_id) REFERENCES assignment (id), 
	FOREIGN KEY(item_id) REFERENCES item (id), 
	FOREIGN KEY(rater_id) REFERENCES rater (id), 
	FOREIGN KEY(version_id) REFERENCES study_version (id)
);
INSERT INTO "judgement" VALUES(1,1,1,1,1,2,1,1,'{"choice": "right", "strength": 2}','[0, 1]','b',2,NULL,'{}','[]','',0,0,NULL,NULL,0,'','659b481605054c22b081c4c0d756111c',NULL,1700000000013);
INSERT INTO "judgement" VALUES(2,1,2,1,2,2,1,1,'{"choice": "left", "strength": 3}','[1, 0]','b',3,NULL,'{}','[]','',0,0,NULL,NULL,0,'','8251a5d40038488d9d42dbb12b0a0220',NULL,1700000000018);
INSERT INTO "judgement" VALUES(3,1,3,4,3,2,1,1,'{"choice": "right", "strength": 1}','[0, 1]','b',1,NULL,'{}','[]','',0,0,NULL,NULL,0,'','b8987263025245c2a760f539cd375ca9',NULL,1700000000023);
INSERT INTO "judgement" VALUES(4,1,4,4,1,2,1,1,'{"choice": "left", "strength": 2}','[1, 0]','b',2,NULL,'{}','[]','',0,0,NULL,NULL,0,'','274f1b67d9b347ccb82f4f658be235fb',NULL,1700000000028);
INSERT INTO "judgement" VALUES(5,1,5,2,2,2,1,1,'{"choice": "tie", "strength": 0}','[1, 0]','tie',0,NULL,'{}','[]','',0,0,NULL,NULL,0,'','39c7237fca33416fb5d56cc7757a9012',NULL,1700000000033);
INSERT INTO "judgement" VALUES(6,1,6,2,3,2,1,1,'{"choice": "tie", "strength": 0}','[0, 1]','tie',0,NULL,'{}','[]','',0,0,NULL,NULL,0,'','ace472dc414e47bda160242ffbd01c38',NULL,1700000000038);
INSERT INTO "judgement" VALUES(7,1,7,3,1,2,1,0,'{"choice": "right", "strength": 2}','[0, 1]','b',2,NULL,'{}','[]','',0,0,NULL,NULL,0,'','62f4451730f445b890473634902aea79',NULL,1700000000043);
INSERT INTO "judgement" VALUES(8,1,8,3,2,2,1,1,'{"choice": "skip", "strength": 0}','[0, 1]','skip',0,NULL,'{}','[]','no idea',0,0,NULL,NULL,0,'','dd48f039708a42eb8eb6867897d5969b',NULL,1700000000048);
INSERT INTO "judgement" VALUES(9,1,9,3,3,2,1,1,'{"choice": "right", "strength": 1}','[0, 1]','b',1,NULL,'{}','[]','',0,0,NULL,NULL,0,'','311ab9a8c79c431d815383657bcb11e4',NULL,1700000000053);
INSERT INTO "judgement" VALUES(10,1,7,3,1,2,2,1,'{"choice": "both_bad", "strength": 0}','[0, 1]','both_bad',0,NULL,'{}','["broken"]','both broken',0,0,NULL,NULL,0,'','3de6f3ec446747649646e36cde02d08f',NULL,1700000000066);
INSERT INTO "judgement" VALUES(11,2,10,6,4,3,1,1,'{"choice": "ranked", "strength": 0, "ranking": [4, 2, 1, 2]}','[3, 2, 0, 1]','ranked',0,'[1, 2, 2, 4]','{}','[]','',0,0,NULL,NULL,0,'','0caf341b55cc41198b56542ede401f66',NULL,1700000000075);
INSERT INTO "judgement" VALUES(12,2,11,6,5,3,1,1,'{"choice": "ranked", "strength": 0, "ranking": [1, 4, 3, 3]}','[3, 0, 2, 1]','ranked',0,'[4, 3, 3, 1]','{}','[]','',0,0,NULL,NULL,0,'','11147747e50e47d0bee10481fb2a4150',NULL,1700000000081);
CREATE TABLE prompt (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	study_id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	messages TEXT NOT NULL, 
	split TEXT NOT NULL, 
	UNIQUE (study_id, "key"), 
	CONSTRAINT known_split CHECK (split IN ('train', 'held_out')), 
	FOREIGN KEY(study_id) REFERENCES study (id)
);
INSERT INTO "prompt" VALUES(1,1,'p0','[{"role": "user", "content": "Question 0?"}]','train');
INSERT INTO "prompt" VALUES(2,1,'p1','[{"role": "user", "content": "Question 1?"}]','train');
INSERT INTO "prompt" VALUES(3,1,'p2','[{"role": "user", "content": "Question 2?"}]','train');
INSERT INTO "prompt" VALUES(4,1,'p3','[{"role": "user", "content": "Question 3?"}]','train');
INSERT INTO "prompt" VALUES(5,1,'p100','[{"role": "user", "content": "Question 100?"}]','train');
INSERT INTO "prompt" VALUES(6,2,'p','[{"role": "user", "content": "?"}]','train');
CREATE TABLE rater (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	study_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	role TEXT NOT NULL, 
	state TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	quota INTEGER, 
	consented BIGINT, 
	excluded TEXT, 
	created BIGINT NOT NULL, 
	seen BIGINT, 
	asked INTEGER DEFAULT '0' NOT NULL, 
	answered BIGINT DEFAULT '0' NOT NULL, 
	skipped BIGINT DEFAULT '0' NOT NULL, 
	left_chosen BIGINT DEFAULT '0' NOT NULL, 
	right_chosen BIGINT DEFAULT '0' NOT NULL, 
	ties BIGINT DEFAULT '0' NOT NULL, 
	longer_chosen BIGINT DEFAULT '0' NOT NULL, 
	shorter_chosen BIGINT DEFAULT '0' NOT NULL, 
	gold_seen BIGINT DEFAULT '0' NOT NULL, 
	gold_right BIGINT DEFAULT '0' NOT NULL, 
	repeat_seen BIGINT DEFAULT '0' NOT NULL, 
	repeat_same BIGINT DEFAULT '0' NOT NULL, 
	flagged BIGINT DEFAULT '0' NOT NULL, 
	timed BIGINT DEFAULT '0' NOT NULL, 
	active_ms BIGINT DEFAULT '0' NOT NULL, 
	UNIQUE (study_id, name), 
	CONSTRAINT known_kind CHECK (kind IN ('human', 'llm', 'simulated')), 
	CONSTRAINT known_role CHECK (role IN ('rater', 'owner')), 
	CONSTRAINT known_state CHECK (state IN ('training', 'active', 'paused')), 
	FOREIGN KEY(study_id) REFERENCES study (id)
);
INSERT INTO "rater" VALUES(1,1,'rater 0','human','rater','active','{}',NULL,NULL,NULL,1700000000004,1700000000041,3,3,0,1,1,0,0,2,0,0,0,0,1,0,0);
INSERT INTO "rater" VALUES(2,1,'rater 1','human','rater','active','{}',NULL,NULL,NULL,1700000000005,1700000000046,3,2,1,1,0,1,0,1,0,0,0,0,0,0,0);
INSERT INTO "rater" VALUES(3,1,'rater 2','human','rater','active','{}',NULL,NULL,NULL,1700000000006,1700000000051,3,3,0,0,2,1,0,2,0,0,0,0,0,0,0);
INSERT INTO "rater" VALUES(4,2,'anna','human','rater','active','{}',NULL,NULL,NULL,1700000000070,1700000000073,1,1,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "rater" VALUES(5,2,'berta','human','rater','active','{}',NULL,NULL,NULL,1700000000076,1700000000079,1,1,0,0,0,0,0,0,0,0,0,0,0,0,0);
INSERT INTO "rater" VALUES(6,1,'late','human','rater','active','{}',NULL,NULL,NULL,1700000000082,NULL,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0);
CREATE TABLE response (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	study_id INTEGER NOT NULL, 
	prompt_id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	text TEXT NOT NULL, 
	sampler TEXT NOT NULL, 
	sampling TEXT NOT NULL, 
	finished INTEGER NOT NULL, 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES study (id), 
	FOREIGN KEY(prompt_id) REFERENCES prompt (id)
);
INSERT INTO "response" VALUES(1,1,1,'p0a','bad 0, and longer','old-model','',1);
INSERT INTO "response" VALUES(2,1,2,'p1a','bad 1, and longer','old-model','',1);
INSERT INTO "response" VALUES(3,1,3,'p2a','bad 2, and longer','old-model','',1);
INSERT INTO "response" VALUES(4,1,4,'p3a','bad 3, and longer','old-model','',1);
INSERT INTO "response" VALUES(5,1,1,'p0b','good 0','new-model','',1);
INSERT INTO "response" VALUES(6,1,2,'p1b','good 1','new-model','',1);
INSERT INTO "response" VALUES(7,1,3,'p2b','good 2','new-model','',1);
INSERT INTO "response" VALUES(8,1,4,'p3b','good 3','new-model','',1);
INSERT INTO "response" VALUES(9,1,5,'p100a','bad 100, and longer','old-model','',1);
INSERT INTO "response" VALUES(10,1,5,'p100b','good 100','new-model','',1);
INSERT INTO "response" VALUES(11,2,6,'best','best','m','',1);
INSERT INTO "response" VALUES(12,2,6,'middling','middling','m','',1);
INSERT INTO "response" VALUES(13,2,6,'middling too','middling too','m','',1);
INSERT INTO "response" VALUES(14,2,6,'worst','worst','m','',1);
CREATE TABLE schema_version (
	version INTEGER NOT NULL, 
	applied BIGINT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "schema_version" VALUES(1,1700000000001);
CREATE TABLE session (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	study_id INTEGER NOT NULL, 
	rater_id INTEGER NOT NULL, 
	token_sha256 TEXT NOT NULL, 
	expires BIGINT NOT NULL, 
	revoked BIGINT, 
	created BIGINT NOT NULL, 
	FOREIGN KEY(study_id) REFERENCES study (id), 
	FOREIGN KEY(rater_id) REFERENCES rater (id), 
	UNIQUE (token_sha256)
);
CREATE TABLE study (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	secret TEXT NOT NULL, 
	state TEXT DEFAULT 'open' NOT NULL, 
	overlap INTEGER NOT NULL, 
	policy TEXT NOT NULL, 
	gold_rate FLOAT NOT NULL, 
	repeat_rate FLOAT NOT NULL, 
	training_pass FLOAT NOT NULL, 
	lease_seconds INTEGER NOT NULL, 
	created BIGINT NOT NULL, 
	CONSTRAINT known_kind CHECK (kind IN ('pair', 'ranking')), 
	CONSTRAINT known_state CHECK (state IN ('open', 'paused', 'closed')), 
	CONSTRAINT known_policy CHECK (policy IN ('finish_first', 'random', 'priority')), 
	UNIQUE (name)
);
INSERT INTO "study" VALUES(1,'tutoring','pair','5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a','open',2,'finish_first',0.0,0.0,0.8,900,1700000000001);
INSERT INTO "study" VALUES(2,'ranks','ranking','5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a','open',2,'finish_first',0.0,0.0,0.8,900,1700000000068);
CREATE TABLE study_version (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	question TEXT NOT NULL, 
	scale INTEGER NOT NULL, 
	criteria TEXT NOT NULL, 
	guidelines TEXT NOT NULL, 
	sha256 TEXT NOT NULL, 
	created BIGINT NOT NULL, 
	UNIQUE (study_id, number), 
	FOREIGN KEY(study_id) REFERENCES study (id)
);
INSERT INTO "study_version" VALUES(1,1,1,'Which response is better?',3,'[]','','9699fcc090780a875b439904edeccb402df97dd30228029f88b367db5951f49a',1700000000001);
INSERT INTO "study_version" VALUES(2,1,2,'Which is clearer?',3,'["clear"]','Be *kind*.','53746c9e24fa175edc277819ba66d69c0e08e2a9e30ba446ad3c4c7ca939eec8',1700000000007);
INSERT INTO "study_version" VALUES(3,2,1,'Which response is better?',3,'[]','','9699fcc090780a875b439904edeccb402df97dd30228029f88b367db5951f49a',1700000000068);
CREATE INDEX event_of_study ON event (study_id, action, id);
CREATE INDEX item_open ON item (study_id, pool, shuffle) WHERE room > 0;
CREATE INDEX item_fresh ON item (study_id, pool, shuffle) WHERE started = 0;
CREATE INDEX item_of_round ON item (study_id, pool, round);
CREATE INDEX item_fresh_priority ON item (study_id, pool, priority, shuffle) WHERE started = 0;
CREATE INDEX item_started ON item (study_id, pool, room, touched) WHERE started = 1 AND room > 0;
CREATE INDEX session_of_rater ON session (rater_id);
CREATE INDEX assignment_held ON assignment (rater_id) WHERE state = 'leased';
CREATE INDEX assignment_of_rater ON assignment (rater_id, state, closed);
CREATE INDEX assignment_leased ON assignment (study_id, lease_ends) WHERE state = 'leased';
CREATE INDEX assignment_by_item ON assignment (rater_id, item_id);
CREATE INDEX judgement_of_rater ON judgement (rater_id, id);
CREATE INDEX judgement_of_study ON judgement (study_id, id);
CREATE INDEX judgement_of_item ON judgement (item_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('study',2);
INSERT INTO "sqlite_sequence" VALUES('study_version',3);
INSERT INTO "sqlite_sequence" VALUES('event',15);
INSERT INTO "sqlite_sequence" VALUES('prompt',6);
INSERT INTO "sqlite_sequence" VALUES('response',14);
INSERT INTO "sqlite_sequence" VALUES('item',6);
INSERT INTO "sqlite_sequence" VALUES('rater',6);
INSERT INTO "sqlite_sequence" VALUES('assignment',11);
INSERT INTO "sqlite_sequence" VALUES('judgement',12);
INSERT INTO "sqlite_sequence" VALUES('export',1);
COMMIT;
