package config

// This file derives the JSON Schema of a configuration file from the table of keys. Editors use the
// schema.

import "encoding/json"

// Schema returns the JSON Schema (draft 2020-12) of a configuration file. The file
// deploy/ringside.schema.json contains it. It describes keys, types, words and most bounds. It does
// not check settings against each other, as Parse does.
func Schema() []byte {
	s := withVariables(fileKeys().schema).(schema)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Ringside configuration"
	s["$defs"] = schema{"variable": schema{"type": "string", "pattern": `\$\{`}}
	s["patternProperties"] = schema{"^x-": true}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("config: the schema is made of maps, lists and scalars: " + err.Error())
	}
	return append(text, '\n')
}

// withVariables returns v, a piece of JSON Schema, so that each scalar can also be a text with a
// variable, such as ${NAME}.
func withVariables(v any) any {
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i, one := range v {
			all[i] = withVariables(one)
		}
		return all
	case schema:
		plain, all := schema{}, schema{}
		for name, of := range v {
			switch {
			case name == "anyOf" || name == "items" || name == "additionalProperties":
				all[name] = withVariables(of)
			case name == "properties":
				properties := schema{}
				for key, one := range of.(schema) {
					properties[key] = withVariables(one)
				}
				all[name] = properties
			case name == "description" || name == "default" || !isScalar(v):
				all[name] = of
			default:
				plain[name] = of
			}
		}
		if len(plain) > 0 {
			all["anyOf"] = []any{plain, schema{"$ref": "#/$defs/variable"}}
		}
		return all
	}
	return v
}

// isScalar reports whether s describes a scalar that is not any text.
func isScalar(s schema) bool {
	return s["enum"] != nil || s["pattern"] != nil || s["type"] == "integer"
}
