ALTER TABLE tokens ADD COLUMN node INTEGER DEFAULT '0' NOT NULL;
ALTER TABLE enrolments ADD COLUMN node INTEGER DEFAULT '0' NOT NULL;
CREATE TABLE site_nodes (
    site TEXT NOT NULL,
    node INTEGER NOT NULL,
    added_at {moment} NOT NULL,
    received_at {moment},
    report {json},
    clock_offset_s FLOAT,
    CONSTRAINT pk_site_nodes PRIMARY KEY (site, node),
    CONSTRAINT ck_site_nodes_node CHECK (node in (0, 1))
);
CREATE TABLE site_switches (
    site TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    cause TEXT NOT NULL,
    reason TEXT,
    taken_at {moment},
    recorded_at {moment} NOT NULL,
    CONSTRAINT pk_site_switches PRIMARY KEY (site, epoch),
    CONSTRAINT ck_site_switches_cause CHECK (cause in ('granted', 'taken', 'silence', 'cut_off', 'handed_over', 'forced'))
);
CREATE INDEX ix_site_switches_recorded_at ON site_switches (recorded_at);
