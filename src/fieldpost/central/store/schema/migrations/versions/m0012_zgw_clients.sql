CREATE TABLE zgw_clients (
    client_id TEXT NOT NULL,
    scopes {json} NOT NULL,
    kanalen {json} NOT NULL,
    secrets {json} NOT NULL,
    rotated_at {moment},
    created_at {moment} NOT NULL,
    created_by TEXT NOT NULL,
    last_used_at {moment},
    revoked_at {moment},
    version BIGINT DEFAULT '1' NOT NULL,
    CONSTRAINT pk_zgw_clients PRIMARY KEY (client_id)
);
