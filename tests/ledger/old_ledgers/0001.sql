BEGIN TRANSACTION;
CREATE TABLE beam_ldp_ledger (
	number BIGINT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (hash)
);
INSERT INTO "beam_ldp_ledger" VALUES(0,'genesis','{"ledger_id":"99e470fcb30a44e89ccea8b596a30c5a"}','0000000000000000000000000000000000000000000000000000000000000000','e0bd9037b041ccb7c4c7267fc66438669308563bdfdd14e685b211597016bbc1');
INSERT INTO "beam_ldp_ledger" VALUES(1,'dataset','{"dataset":"visits","neighbours":"replace-one","population":"visits","privacy_unit":"user","time":"2026-11-22T01:01:37+00:00"}','e0bd9037b041ccb7c4c7267fc66438669308563bdfdd14e685b211597016bbc1','28f89c392f2ccdf73db5f49c07b03b6a92e961594bf9da410837029bdebe2f94');
INSERT INTO "beam_ldp_ledger" VALUES(2,'budget','{"by":"Ada","delta":0.000001,"epsilon":2,"local_epsilon":8,"orders":[12.4027577524595,4.134252584153167,37.2082732573785,124.027577524595,496.11031009838],"period_days":null,"population":"visits","time":"2026-11-22T01:01:37+00:00","why":""}','28f89c392f2ccdf73db5f49c07b03b6a92e961594bf9da410837029bdebe2f94','891fe95ba2d8198528baa965e5ad15b3c84042b01d1e3b23ebeb8646e17db1d4');
INSERT INTO "beam_ldp_ledger" VALUES(3,'reserve','{"about":{"question":"url"},"dataset":"visits","event":{"event":{"kind":"ShuffledDpEvent","local_event":{"kind":"LocalRandomizerDpEvent","local_epsilon":2,"pair":null,"witnesses":[]},"num_reports":100000},"version":1},"local_epsilon":2,"memoized":false,"run_id":"monday","time":"2026-11-22T01:01:39+00:00"}','891fe95ba2d8198528baa965e5ad15b3c84042b01d1e3b23ebeb8646e17db1d4','ca41fb460610fbf372f26f849980225264741568a3d815439cbc1e2679d99918');
INSERT INTO "beam_ldp_ledger" VALUES(4,'settle','{"about":{"num_reports":120000},"event":{"event":{"kind":"ShuffledDpEvent","local_event":{"kind":"LocalRandomizerDpEvent","local_epsilon":2,"pair":null,"witnesses":[]},"num_reports":120000},"version":1},"local_epsilon":2,"overspent":false,"run_id":"monday","time":"2026-11-22T01:01:40+00:00"}','ca41fb460610fbf372f26f849980225264741568a3d815439cbc1e2679d99918','441a3018ed2e22e52e56fcba52fef2bf64bb8d21ac313d42bef0ebb071611f3a');
INSERT INTO "beam_ldp_ledger" VALUES(5,'reserve','{"about":{},"dataset":"visits","event":{"event":{"kind":"ShuffledDpEvent","local_event":{"kind":"LocalRandomizerDpEvent","local_epsilon":2,"pair":null,"witnesses":[]},"num_reports":100000},"version":1},"local_epsilon":2,"memoized":false,"run_id":"tuesday","time":"2026-11-22T01:01:41+00:00"}','441a3018ed2e22e52e56fcba52fef2bf64bb8d21ac313d42bef0ebb071611f3a','d7d0d535fc4c06a9007bdf993c919fb53d23291bdaffc3042017b2527f88fa7e');
CREATE TABLE beam_ldp_ledger_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT beam_ldp_ledger_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "beam_ldp_ledger_version" VALUES('0001');
COMMIT;
