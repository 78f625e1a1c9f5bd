-- The triggers of a node in a pair: they name each changed row in `changes`, whichever process changes it. Inserting a
-- notification fires none of them, so `send` costs the same as without a pair. Dropped when the node leaves the pair.
--
-- An entry is inserted before its predecessor is deleted: deleting the newest entry first would use its number again.

CREATE TRIGGER pair_message_removed AFTER DELETE ON messages WHEN OLD.status <> 'marker' BEGIN
    INSERT INTO changes (kind, id) VALUES ('message', OLD.message_id);
    DELETE FROM changes WHERE kind = 'message' AND id = OLD.message_id AND number < last_insert_rowid();
    -- The marker keeps the highest sequence in the table, so that it is never used again.
    UPDATE messages SET sequence = OLD.sequence
    WHERE message_id = '' AND OLD.sequence > (SELECT max(sequence) FROM messages);
END;

CREATE TRIGGER pair_call_added AFTER INSERT ON calls BEGIN
    INSERT INTO changes (created, kind, id)
    VALUES ((SELECT max(created) FROM changes WHERE kind = 'call' AND id = NEW.message_id), 'call', NEW.message_id);
    DELETE FROM changes WHERE kind = 'call' AND id = NEW.message_id AND number < last_insert_rowid();
END;
CREATE TRIGGER pair_call_changed AFTER UPDATE ON calls BEGIN
    INSERT INTO changes (created, kind, id)
    VALUES ((SELECT max(created) FROM changes WHERE kind = 'call' AND id = NEW.message_id), 'call', NEW.message_id);
    DELETE FROM changes WHERE kind = 'call' AND id = NEW.message_id AND number < last_insert_rowid();
END;
CREATE TRIGGER pair_call_removed AFTER DELETE ON calls BEGIN
    INSERT INTO changes (created, kind, id)
    VALUES ((SELECT max(created) FROM changes WHERE kind = 'call' AND id = OLD.message_id), 'call', OLD.message_id);
    DELETE FROM changes WHERE kind = 'call' AND id = OLD.message_id AND number < last_insert_rowid();
END;

CREATE TRIGGER pair_record_added AFTER INSERT ON tracking BEGIN
    INSERT INTO changes (created, kind, id)
    VALUES ((SELECT max(created) FROM changes WHERE kind = 'call' AND id = NEW.call_id), 'call', NEW.call_id);
    DELETE FROM changes WHERE kind = 'call' AND id = NEW.call_id AND number < last_insert_rowid();
    UPDATE changes SET created = number WHERE number = last_insert_rowid();
END;
CREATE TRIGGER pair_record_changed AFTER UPDATE ON tracking BEGIN
    INSERT INTO changes (created, kind, id)
    VALUES ((SELECT max(created) FROM changes WHERE kind = 'call' AND id = NEW.call_id), 'call', NEW.call_id);
    DELETE FROM changes WHERE kind = 'call' AND id = NEW.call_id AND number < last_insert_rowid();
END;
CREATE TRIGGER pair_record_removed AFTER DELETE ON tracking BEGIN
    INSERT INTO changes (created, kind, id)
    VALUES ((SELECT max(created) FROM changes WHERE kind = 'call' AND id = OLD.call_id), 'call', OLD.call_id);
    DELETE FROM changes WHERE kind = 'call' AND id = OLD.call_id AND number < last_insert_rowid();
END;

CREATE TRIGGER pair_rejected_added AFTER INSERT ON rejected BEGIN
    INSERT INTO changes (kind, id) VALUES ('rejected', NEW.message_id);
    DELETE FROM changes WHERE kind = 'rejected' AND id = NEW.message_id AND number < last_insert_rowid();
END;
CREATE TRIGGER pair_rejected_removed AFTER DELETE ON rejected BEGIN
    INSERT INTO changes (kind, id) VALUES ('rejected', OLD.message_id);
    DELETE FROM changes WHERE kind = 'rejected' AND id = OLD.message_id AND number < last_insert_rowid();
END;

CREATE TRIGGER pair_key_added AFTER INSERT ON keys BEGIN
    INSERT INTO changes (kind, id) VALUES ('key', NEW.key);
    DELETE FROM changes WHERE kind = 'key' AND id = NEW.key AND number < last_insert_rowid();
END;
CREATE TRIGGER pair_key_removed AFTER DELETE ON keys BEGIN
    INSERT INTO changes (kind, id) VALUES ('key', OLD.key);
    DELETE FROM changes WHERE kind = 'key' AND id = OLD.key AND number < last_insert_rowid();
END;

CREATE TRIGGER pair_command_added AFTER INSERT ON commands BEGIN
    INSERT INTO changes (kind, id) VALUES ('command', NEW.intent_id);
    DELETE FROM changes WHERE kind = 'command' AND id = NEW.intent_id AND number < last_insert_rowid();
END;
CREATE TRIGGER pair_command_removed AFTER DELETE ON commands BEGIN
    INSERT INTO changes (kind, id) VALUES ('command', OLD.intent_id);
    DELETE FROM changes WHERE kind = 'command' AND id = OLD.intent_id AND number < last_insert_rowid();
END;
