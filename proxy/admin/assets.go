package admin

// This part of the package has the files of the dashboard, which are embedded in the program.
//
//	page/index.html   /, which names the other files by a hash of their content, so browsers may cache those forever
//	page/app.css      the style
//	page/app.js       displays the data of /api/

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed page
var files embed.FS

// pageText is the HTML of the dashboard. pageParts are the files that the HTML loads, by path. A
// path contains a hash of the file's content, so browsers may cache the file forever.
var pageText, pageParts = readPage()

// pagePart is a file that the dashboard's HTML page loads.
type pagePart struct{ contentType, text string }

func readPage() (string, map[string]pagePart) {
	text := func(name string) string {
		b, err := files.ReadFile("page/" + name)
		if err != nil {
			panic(err) // the file is embedded in the program, so it can always be read
		}
		return string(b)
	}
	html, parts := text("index.html"), map[string]pagePart{}
	for name, kind := range map[string]string{"app.css": "text/css", "app.js": "text/javascript"} {
		is := text(name)
		sum := sha256.Sum256([]byte(is))
		path := "page/" + hex.EncodeToString(sum[:6]) + "/" + name
		html = strings.Replace(html, `"`+name+`"`, `"`+path+`"`, 1)
		parts["/"+path] = pagePart{kind + "; charset=utf-8", is}
	}
	return html, parts
}
