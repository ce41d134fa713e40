// Package page holds the files of the page, which are part of the program.
//
//	index.html   /, which names the parts by a hash of what is in them: a browser may keep those for ever
//	app.css      how it looks
//	app.js       draws what /api/ sends: see package admin
//
// It serves nothing: package admin decides who may see the page.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed index.html app.css app.js
var files embed.FS

// Text is the page, and Parts what it loads, by path. The name of a part changes with
// what is in it, so a browser may keep it for ever.
var Text, Parts = read()

// Part is a file that the page loads.
type Part struct{ Kind, Text string }

func read() (string, map[string]Part) {
	text := func(name string) string {
		b, err := files.ReadFile(name)
		if err != nil {
			panic(err) // it is part of the program
		}
		return string(b)
	}
	html, parts := text("index.html"), map[string]Part{}
	for name, kind := range map[string]string{"app.css": "text/css", "app.js": "text/javascript"} {
		is := text(name)
		sum := sha256.Sum256([]byte(is))
		path := "page/" + hex.EncodeToString(sum[:6]) + "/" + name
		html = strings.Replace(html, `"`+name+`"`, `"`+path+`"`, 1)
		parts["/"+path] = Part{kind + "; charset=utf-8", is}
	}
	return html, parts
}
