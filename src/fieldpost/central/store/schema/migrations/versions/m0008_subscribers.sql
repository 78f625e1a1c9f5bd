ALTER TABLE tokens ADD COLUMN subscription_owner TEXT;
ALTER TABLE subscriptions ADD COLUMN is_verified BOOLEAN DEFAULT true NOT NULL;
