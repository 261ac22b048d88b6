-- The defaults of these two columns were texts. Other databases keep bytes and texts apart.
UPDATE runs SET payer = CAST(payer AS BLOB) WHERE typeof(payer) = 'text';
UPDATE api_keys SET details = CAST(details AS BLOB) WHERE typeof(details) = 'text';
