package config

// The JSON Schema of a file, which editors use. It is derived from the table of keys.

import "encoding/json"

// Schema returns the JSON Schema (draft 2020-12) of a file: deploy/ringside.schema.json. It has
// keys, types, words and most bounds. Only Parse checks settings against each other.
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
