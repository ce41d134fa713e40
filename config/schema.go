package config

// This file derives the JSON Schema of a configuration file from the table of keys. Editors use the
// schema.

import "encoding/json"

// Schema returns the JSON Schema (draft 2020-12) of a configuration file. The file
// deploy/ringside.schema.json contains it. It describes keys, types, words and most bounds. It does
// not check settings against each other, as Parse does.
func Schema() []byte {
	s := fileKeys().schema
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Ringside configuration"
	s["patternProperties"] = schema{"^x-": true}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("config: the schema is made of maps, lists and scalars: " + err.Error())
	}
	return append(text, '\n')
}
