package config

// The table of keys as JSON Schema, for editors.

import "encoding/json"

// Schema returns the JSON Schema (draft 2020-12) of a file: deploy/ringside.schema.json.
// It knows keys, types, words and most bounds; what must hold between settings
// only Parse knows.
func Schema() []byte {
	s := fileKeys().schema()
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Ringside configuration"
	s["patternProperties"] = schema{"^x-": true}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("config: the schema is made of maps, lists and scalars: " + err.Error())
	}
	return append(text, '\n')
}
