import{$n as e,A as t,B as n,Kr as r,M as i,Pr as a,Qn as o,Z as s,j as c,zn as l}from"./start.js";async function u(t){try{await n(p(await a.session(t))),e(r().copied)}catch(e){o(e)}}async function d(e,t){try{let n=await(t===`json`?a.wholeSession(e):a.session(e)),r=(n.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;t===`json`?g(`${r}.json`,JSON.stringify(n,null,2),`application/json`):g(`${r}.md`,p(n),`text/markdown`)}catch(e){o(e)}}async function f(e){try{let t=[];for(let n of e)t.push(p(await a.session(n)));g(`chats.md`,t.join(`
---

`),`text/markdown`)}catch(e){o(e)}}function p(e){return`${[`# ${e.title||r().untitled}`,...e.system?[h(e.system)]:[],...c(e.messages).map(m)].join(`

`)}\n`}function m({message:e,earlier:n}){let a=e.role===`user`?r().you:i([...n,e]).join(`, `)||e.role,o=s(e.outcome,null),c=[...[...n,e].flatMap(({content:e})=>l(e)).map(()=>r().imageAlt),e.edited?r().editedByPerson:``,o?.label??``].filter(Boolean);return[`## ${a}`,t([...n,e]),...c.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};