CREATE TABLE installation (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    CONSTRAINT pk_installation PRIMARY KEY (name)
);
