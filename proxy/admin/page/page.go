// Package page has the files of the dashboard, which are embedded in the program.
//
//	index.html   /, which names the other files by a hash of their content, so browsers may cache those forever
//	app.css      the style
//	app.js       displays the data of /api/: see package admin
//
// It does not serve them: package admin decides which clients may see the dashboard.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed index.html app.css app.js
var files embed.FS

// Text is the page, and Parts are the files that it loads, by path. A path contains a hash of
// the content, so browsers may cache the file forever.
var Text, Parts = read()

// Part is a file that the page loads.
type Part struct{ Kind, Text string }

func read() (string, map[string]Part) {
	text := func(name string) string {
		b, err := files.ReadFile(name)
		if err != nil {
			panic(err) // it is embedded in the program
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
