import{D as e,E as t,I as n,Ln as r,O as i,Rn as a,jr as o,q as s,yr as c}from"./start.js";async function l(e){try{await n(f(await c.session(e))),a(o().copied)}catch(e){r(e)}}async function u(e,t){try{let n=await(t===`json`?c.wholeSession(e):c.session(e)),r=(n.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;t===`json`?h(`${r}.json`,JSON.stringify(n,null,2),`application/json`):h(`${r}.md`,f(n),`text/markdown`)}catch(e){r(e)}}async function d(e){try{let t=[];for(let n of e)t.push(f(await c.session(n)));h(`chats.md`,t.join(`
---

`),`text/markdown`)}catch(e){r(e)}}function f(t){return`${[`# ${t.title||o().untitled}`,...t.system?[m(t.system)]:[],...e(t.messages).map(p)].join(`

`)}\n`}function p({message:e,earlier:n}){let r=e.role===`user`?o().you:i([...n,e]).join(`, `)||e.role,a=s(e.outcome,null),c=[e.edited?o().editedByPerson:``,a?.label??``].filter(Boolean);return[`## ${r}`,t([...n,e]),...c.map(e=>`*${e}.*`)].join(`

`)}function m(e){return e.replace(/^/gm,`> `)}function h(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{f as asMarkdown,l as copyMarkdown,d as exportAll,u as exportAs};