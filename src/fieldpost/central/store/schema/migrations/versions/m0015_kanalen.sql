ALTER TABLE topics ADD COLUMN kanaal_id {id};
ALTER TABLE topics ADD COLUMN documentation_url TEXT;
CREATE UNIQUE INDEX uq_topics_kanaal_id ON topics (kanaal_id) WHERE kanaal_id is not null;
ALTER TABLE subscriptions ADD COLUMN abonnement_id {id};
CREATE UNIQUE INDEX uq_subscriptions_abonnement_id ON subscriptions (abonnement_id) WHERE abonnement_id is not null;
