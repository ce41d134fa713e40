package main

// This file draws docs/ringside.svg, the picture of README.md: hosts with applications and an
// instance, and the servers of the pool.

import (
	"fmt"
	"strings"
)

// picture returns the picture as SVG.
func picture() []byte {
	const (
		appX, appWidth, appHeight             = 30, 86, 20
		instanceX, instanceWidth, instanceTop = 226, 104, 32 // instanceTop is relative to the top of the host
		serverX, serverWidth                  = 580, 150
		boxHeight                             = 36 // of instances and servers
		hostHeight                            = 100
	)
	hosts := []struct {
		top  int
		apps []string
	}{{16, []string{"PHP", "Go"}}, {134, []string{"Java", "Python"}}}
	servers := []string{"memcached a", "memcached b", "memcached c"}
	serverTop := func(i int) int { return 26 + 81*i }
	middle := func(top int) int { return top + boxHeight/2 }
	var b strings.Builder
	box := func(x, top, width, height int, name, style, ink string) {
		fmt.Fprintf(&b, "  <rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" %s/><text x=\"%d\" y=\"%d\" fill=\"%s\" text-anchor=\"middle\">%s</text>\n",
			x, top, width, height, style, x+width/2, top+height/2+5, ink, name)
	}
	line := func(x, y, toX, toY int, colour string) {
		fmt.Fprintf(&b, "  <path d=\"M%d %dL%d %d\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", x, y, toX, toY, colour)
	}
	note := func(x, y int, text string) {
		fmt.Fprintf(&b, "  <text x=\"%d\" y=\"%d\" fill=\"#6b7485\" font-size=\"11\">%s</text>\n", x, y, text)
	}
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 250" font-family="sans-serif" font-size="13" role="img" aria-label="Clients speak memcached to the instance on their host; each instance speaks to all servers of the pool">
  <rect width="760" height="250" rx="8" fill="#ffffff"/>
`)
	for _, h := range hosts {
		fmt.Fprintf(&b, "  <rect x=\"16\" y=\"%d\" width=\"330\" height=\"%d\" rx=\"8\" fill=\"none\" stroke=\"#8a94a6\" stroke-dasharray=\"4 4\"/>\n", h.top, hostHeight)
		note(26, h.top+16, "host")
		at := h.top + instanceTop
		for i, app := range h.apps {
			top := h.top + 28 + 24*i
			line(appX+appWidth, top+appHeight/2, instanceX, top+appHeight/2, "#4c6ef5")
			box(appX, top, appWidth, appHeight, app, `fill="#eef2ff" stroke="#4c6ef5"`, "#1c2333")
		}
		for i := range servers {
			line(instanceX+instanceWidth, middle(at), serverX, middle(serverTop(i)), "#12805c")
		}
		box(instanceX, at, instanceWidth, boxHeight, "ringside", `fill="#1c2333"`, "#ffffff")
	}
	for i, name := range servers {
		box(serverX, serverTop(i), serverWidth, boxHeight, name, `fill="#e6f6ef" stroke="#12805c"`, "#1c2333")
	}
	note(124, 104, "one server for the applications")
	note(372, 244, "every key where your old client put it")
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
