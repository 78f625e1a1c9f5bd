CREATE TABLE site_epochs (
    site TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    node INTEGER NOT NULL,
    until {moment},
    is_taken BOOLEAN DEFAULT false NOT NULL,
    CONSTRAINT pk_site_epochs PRIMARY KEY (site),
    CONSTRAINT ck_site_epochs_holder CHECK (node in (0, 1) and epoch >= 0 and epoch % 2 = node)
);
