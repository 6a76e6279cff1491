-- The tables of version 1, as the first release made them. Never edited: see test_opening.py.
CREATE TABLE schema_version (
	version INTEGER NOT NULL,
	applied BIGINT NOT NULL,
	PRIMARY KEY (version)
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
CREATE INDEX event_of_study ON event (study_id, action, id);
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
CREATE INDEX item_fresh ON item (study_id, pool, shuffle) WHERE started = 0;
CREATE INDEX item_open ON item (study_id, pool, shuffle) WHERE room > 0;
CREATE INDEX item_started ON item (study_id, pool, room, touched) WHERE started = 1 AND room > 0;
CREATE INDEX item_fresh_priority ON item (study_id, pool, priority, shuffle) WHERE started = 0;
CREATE INDEX item_of_round ON item (study_id, pool, round);
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
CREATE INDEX session_of_rater ON session (rater_id);
CREATE TABLE item_response (
	item_id INTEGER NOT NULL,
	position INTEGER NOT NULL,
	response_id INTEGER NOT NULL,
	PRIMARY KEY (item_id, position),
	FOREIGN KEY(item_id) REFERENCES item (id),
	FOREIGN KEY(response_id) REFERENCES response (id)
);
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
CREATE INDEX assignment_by_item ON assignment (rater_id, item_id);
CREATE INDEX assignment_held ON assignment (rater_id) WHERE state = 'leased';
CREATE INDEX assignment_leased ON assignment (study_id, lease_ends) WHERE state = 'leased';
CREATE INDEX assignment_of_rater ON assignment (rater_id, state, closed);
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
CREATE INDEX judgement_of_rater ON judgement (rater_id, id);
CREATE INDEX judgement_of_study ON judgement (study_id, id);
CREATE INDEX judgement_of_item ON judgement (item_id);
